"""Whose process ids a record holds: each pid namespace counts its own."""

from __future__ import annotations

import os


def pid_namespace() -> int | None:
    """Number of the pid namespace that this process is in; `None` where the system does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None

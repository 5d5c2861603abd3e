"""PID namespace of the process ids in a record: each namespace numbers its processes separately."""

from __future__ import annotations

import os


def pid_namespace() -> int | None:
    """Return the number of this process's PID namespace; `None` if the system does not report it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None

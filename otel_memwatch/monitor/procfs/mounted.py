"""Whose processes the mounted /proc shows."""

from __future__ import annotations

import os


def shows_others(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Whether it is that of another pid namespace (`unshare --pid` without `--mount-proc`), so that no pid is right in it.

    What stands below /proc/self is our own all the same. False where there is no /proc at all.
    """
    try:
        return os.readlink(os.path.join(proc, "self")) != str(os.getpid())
    except OSError:
        return False

"""The few questions to the system that Python has no function for; none raises where it cannot be answered."""

from __future__ import annotations

import os

PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, argument: int | bytes) -> bool:
    """Make the call of that name with one argument; False where the system or this Python build does not have it.

    The first call imports ctypes (a few milliseconds).
    """
    try:
        import ctypes

        value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
        zero = ctypes.c_ulong(0)
        return bool(ctypes.CDLL(None).prctl(ctypes.c_int(option), value, zero, zero, zero) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def open_files() -> list[int]:
    """Descriptors of this process; one that was only open for this call may be among them. Empty: not known."""
    place = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    try:
        return [int(name) for name in os.listdir(place)]
    except OSError:
        return []

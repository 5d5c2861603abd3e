"""The few Linux calls that Python has no function for; each tells whether it worked and never raises."""

from __future__ import annotations

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, argument: int | bytes) -> bool:
    """Call prctl(2) with one argument; False where the system or this Python build does not have it.

    The first call imports ctypes (a few milliseconds).
    """
    try:
        import ctypes  # noqa: PLC0415 - most processes that import this module never need it

        value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
        zero = ctypes.c_ulong(0)
        return bool(ctypes.CDLL(None).prctl(ctypes.c_int(option), value, zero, zero, zero) == 0)
    except (ImportError, AttributeError, OSError):
        return False

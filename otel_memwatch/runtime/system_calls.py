"""The few questions to the system that Python has no function for; none raises where it cannot be answered."""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.typed import Any

PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, argument: int | bytes) -> bool:
    """Make the call of that name with one argument; False where the system or this Python build does not have it.

    It is made by the part of ctypes that is written in C: the command would wait 1 ms for the rest. Arguments that are
    numbers are widened to the registers that the call takes them from.
    """
    try:
        from _ctypes import call_function, dlopen, dlsym

        this_program: Any = None
        address = dlsym(dlopen(this_program, 0), "prctl")
        return bool(call_function(address, (option, argument, 0, 0, 0)) == 0)
    except (ImportError, OSError):
        return False


def parent_death_signal() -> int:
    """The signal that this process gets when its parent dies; 0: none, or it cannot be asked."""
    # The kernel writes into these bytes, which nobody else has: a pointer is passed of bytes only.
    answer = bytes(bytearray(4))
    return int.from_bytes(answer, sys.byteorder) if prctl(PR_GET_PDEATHSIG, answer) else 0


def open_files() -> list[int]:
    """Descriptors of this process; one that was only open for this call may be among them. Empty: not known."""
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    try:
        return [int(name) for name in os.listdir(directory)]
    except OSError:
        return []

"""System calls without a Python function. None of these functions raises if the call is unavailable."""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.typed import Any

try:
    signal: Any = __import__("_signal")
    """Functions and numbers of signals. `signal` makes enumerations of them, when it is imported and in each call."""
except ImportError:  # not CPython
    signal = __import__("signal")

PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61


def signal_name(number: int) -> str:
    """Return the name of a signal, as SIGKILL; "signal 77" for one without a name."""
    try:
        from signal import Signals

        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def prctl(option: int, argument: int | bytes) -> bool:
    """Set an option of this process, and return whether the system and this Python build support it.

    Integer arguments are widened to register size.
    """
    return call("prctl", option, argument, 0, 0, 0) == 0


def call(name: str, *arguments: int | bytes) -> int | None:
    """Return the result of a function of the C library; `None`: it is unavailable.

    Uses only the C part of ctypes, because importing the rest would delay the command by 1 ms.
    """
    try:
        from _ctypes import call_function, dlopen, dlsym

        this_program: Any = None
        result: int = call_function(dlsym(dlopen(this_program, 0), name), arguments)
        return result
    except (ImportError, OSError):
        return None


def parent_death_signal() -> int:
    """Return the signal that this process gets when its parent dies; 0 if none or unknown."""
    # The kernel writes into these bytes, which have no other reference. Only bytes are passed as a pointer.
    answer = bytes(bytearray(4))
    return int.from_bytes(answer, sys.byteorder) if prctl(PR_GET_PDEATHSIG, answer) else 0


def open_files() -> list[int]:
    """Return the descriptors of this process, possibly including one open only during this call. Empty if unknown."""
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    try:
        return [int(name) for name in os.listdir(directory)]
    except OSError:
        return []

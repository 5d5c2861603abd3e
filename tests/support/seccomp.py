"""A seccomp filter that refuses one system call, as containers and sandboxes do."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

import pytest

NUMBERS = {"poll": 7, "getrusage": 98, "rt_sigtimedwait": 128, "waitid": 247}
"""Numbers of the calls on x86_64."""
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ERROR, _ALLOW = 0x50000, 0x7FFF0000

needs_filter = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")


def refuse(call: str) -> None:
    """Refuse a system call in this process and its descendants from now on, as not implemented."""
    steps = [
        (_LOAD, 0, 0, 0),
        (_EQUAL, 0, 1, NUMBERS[call]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(_SECCOMP, _FILTER, header) == 0

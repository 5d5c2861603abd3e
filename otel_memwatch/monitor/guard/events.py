"""Events of a run for the program that started it: JSON lines on a descriptor or in a file (`--events`).

`events.schema.json` declares the lines. A reader that is slow or gone never delays the run: a line that cannot be written
at once is dropped, and one sentence says so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time

from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = 1
_STANDARD = 2
"""Descriptors up to this one also belong to the command. They stay open."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
"""A FIFO without a reader fails at once instead of waiting for one."""


class EventWriter:
    """Writer of events. Create it before any other file is opened, and before the command starts.

    The command does not inherit the descriptor: otherwise a reader would see no end of file while a daemon lives.

    Args:
        target: number of a descriptor that we inherited, or a path. A file is created, or appended to.
        problem: reports why an event could not be written; called at most once.

    """

    def __init__(self, target: str, problem: Callable[[str], None]) -> None:
        self._target, self._problem = target, problem
        self._is_number = target.removeprefix("-").isdecimal()
        self._descriptor = -1
        try:
            self._descriptor = _inherited(int(target)) if self._is_number else os.open(target, _FLAGS, 0o600)
        except OSError as error:
            why = (
                "no program reads this FIFO" if error.errno == errno.ENXIO else os.strerror(error.errno or 0)
            )
            self._fail(why[:1].lower() + why[1:])

    def write(self, event: str, kind: str | None, at: float, **facts: Any) -> None:
        """Write an event. `at`: seconds since the start of the run. Raises nothing."""
        if self._descriptor < 0:
            return
        fields = {
            "schema": SCHEMA,
            "event": event,
            "kind": kind,
            "at": round(at, 3),
            "time": round(time.time(), 3),
        }
        line = strict_json.dumps({**fields, **facts}, ensure_ascii=True).encode("ascii") + b"\n"
        try:
            # The description may be shared with other programs, so it must not become non-blocking. A pipe that is
            # ready has room for 4 KiB.
            ready = select.poll()
            ready.register(self._descriptor, select.POLLOUT)
            if not ready.poll(0):
                self._fail("its reader does not read")
            elif os.write(self._descriptor, line) < len(line):
                self._fail(os.strerror(errno.ENOSPC).lower())
        except OSError as error:
            self._fail(os.strerror(error.errno or 0).lower())

    def close(self) -> None:
        """Close the descriptor; the reader then sees the end of file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _fail(self, why: str) -> None:
        name = f"descriptor {self._target}" if self._is_number else self._target
        self._problem(f"events are not written to {name}: {why}")
        with contextlib.suppress(OSError):
            self.close()


def _inherited(number: int) -> int:
    """Return our copy of an inherited descriptor, and close the original one unless it is a standard stream."""
    try:
        inherited = os.get_inheritable(number)
    except OverflowError:
        inherited = False
    if not inherited:  # this program opened it: the caller passed none
        raise OSError(errno.EBADF, "not open")
    copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _STANDARD + 1)
    if number > _STANDARD:
        os.close(number)
    return copy

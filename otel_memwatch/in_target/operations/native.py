"""The boundaries of operations in compiled code: 10 us instead of 30, and no waiting beside threads that compute.

`_native.c` takes every boundary from its first step to the written line. What is left to Python is to open files: at
the start, and again after the program has closed descriptors that it does not know.
"""

from __future__ import annotations

import _thread
import os

from otel_memwatch.in_target.operations.lines import quote
from otel_memwatch.in_target.operations.process import (
    PER_THREAD,
    NoWatermark,
    close_quietly,
    open_io,
    open_watermark,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.journal import Journal
    from otel_memwatch.in_target.operations.process import Watermark

PLAIN_VARIABLE = "OTEL_MEMWATCH_PLAIN_OPERATIONS"
"""Set to 1, compiled code is not used where it is installed."""

COMPILED = False
try:
    if os.environ.get(PLAIN_VARIABLE, "").strip().lower() not in {"1", "true", "yes", "on"}:
        from otel_memwatch.in_target.operations import _native

        COMPILED = True
except ImportError:
    pass

# A lock of Python's runs signal handlers while it waits: one that forks, while another thread has the lock, leaves the
# child waiting for a thread that it does not have. Only compiled code can wait without running them.
Lock = _thread.RLock if TYPE_CHECKING or not COMPILED else _native.Lock


children_mark = _native.children_mark if TYPE_CHECKING or COMPILED else None
"""What is known of this process's children, in one call; `None`: there is no compiled code."""


def in_main_interpreter() -> bool:
    """Whether this is not a subinterpreter, which ends before its process does."""
    if COMPILED:
        return _native.in_main_interpreter()
    is_main = getattr(_thread, "_is_main_interpreter", None)
    if is_main is not None:
        return bool(is_main())
    try:  # before Python 3.12
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


class NativeBoundaries:
    """Takes the boundaries of this process's operations and writes their lines: `values.Boundaries`."""

    __slots__ = ("_io", "_journal", "_lock", "_native", "_stopped", "_watermark", "close", "figures", "open")

    def __init__(self, journal: Journal, watermark: Watermark, first_id: int) -> None:
        self._journal = journal
        self._watermark = watermark
        self._io = open_io()
        self._stopped = False
        self._lock = Lock()
        self._native = native = _native.Boundaries(first_id, self._open_again, self._write_rest, quote)
        self.open, self.close, self.figures = native.open, native.close, native.figures
        self._hand_over()

    def _hand_over(self) -> None:
        """Tell the compiled code what is open now."""
        watermark = self._watermark
        self._native.use(
            watermark.kind,
            watermark.reset,
            watermark.size,
            watermark.status,
            self._io,
            self._journal.descriptor,
            PER_THREAD,
            watermark.own_min,
            watermark.last,
            watermark.error,
            watermark.before,
            watermark.own_read,
            watermark.own_written,
        )

    def _open_again(self, generation: int) -> None:
        """Open everything again after the program has closed it; what has the numbers now is the program's.

        Called between boundaries. Where the record cannot be opened any more (it has dropped its privileges, say)
        nothing is. `generation`: how often that had been done when something was found closed; where another thread
        has done it since, there is nothing to be done.
        """
        with self._lock:
            if generation != self._native.generation or self._stopped:
                return
            journal = self._journal
            recorded = journal.is_ours() or journal.reopen()
            self._watermark = (
                open_watermark(self._watermark.exact, self._watermark) if recorded else NoWatermark()
            )
            self._io = open_io() if recorded else -1
            self._hand_over()

    def _write_rest(self, data: bytes, error: int) -> None:
        """What could not be written of a line; `error`: why not, 0: the system took a part of it only."""
        with self._lock:
            if self._stopped:
                return
            journal = self._journal
            before = journal.written
            if error:
                journal.recover(data, OSError(error, os.strerror(error)))
            else:
                journal.write(data)
            self._native.use_journal(journal.descriptor, journal.written - before)

    def shutdown(self, *, forked: bool = False) -> None:
        """Record nothing more, give the descriptors back."""
        if forked:  # whoever has the lock may not be there to give it back
            self._lock = Lock()
        with self._lock:
            self._stopped = True
            self._native.stop()
            self._watermark.close()
            close_quietly(self._io)
            self._io = -1
            self._journal.close()

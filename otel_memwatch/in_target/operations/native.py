"""Boundaries of operations in compiled code: 10 us instead of 30, without waiting for busy threads.

`_native.c` handles every boundary from the first step to the written line. Python code only opens files: at the start,
and again after the program has closed descriptors that it does not know.
"""

from __future__ import annotations

import _thread
import os

from otel_memwatch.in_target.operations.process_state import (
    PER_THREAD,
    NoWatermark,
    close_quietly,
    open_io,
    open_watermark,
)
from otel_memwatch.record.operation_writer import quote
from otel_memwatch.runtime.kernel import processors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.journal import Journal
    from otel_memwatch.in_target.operations.process_state import Watermark

PLAIN_VARIABLE = "OTEL_MEMWATCH_PLAIN_OPERATIONS"
"""Environment variable that disables compiled code if set to 1."""

COMPILED = False
try:
    if os.environ.get(PLAIN_VARIABLE, "").strip().lower() not in {"1", "true", "yes", "on"}:
        from otel_memwatch.in_target.operations import _native

        COMPILED = True
except ImportError:
    pass

# Python's locks run signal handlers while they wait. If a handler forks while another thread holds the lock, the child
# waits for ever for a thread that it does not have. Only compiled code can wait without running handlers.
Lock = _thread.RLock if TYPE_CHECKING or not COMPILED else _native.Lock


children_mark = _native.children_mark if TYPE_CHECKING or COMPILED else None
"""Function that reads the counters of this process's children in one call; `None` without compiled code."""
heap_books = _native.heap_books if TYPE_CHECKING or COMPILED else None
"""Function that reads the statistics of this process's allocators (`heap.py`); `None` without compiled code."""


def in_main_interpreter() -> bool:
    """Return whether this is the main interpreter. A subinterpreter ends before its process."""
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
    """Implementation of `operation_values.Boundaries` in compiled code."""

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
        """Pass the open descriptors to the compiled code."""
        watermark = self._watermark
        self._native.use(
            watermark.kind,
            watermark.reset,
            watermark.size,
            watermark.status,
            self._io,
            self._journal.descriptor,
            PER_THREAD,
            processors(),
            watermark.own_min,
            watermark.last,
            watermark.error,
            watermark.before,
            watermark.own_read,
            watermark.own_written,
        )

    def _open_again(self, generation: int) -> None:
        """Open all files again after the program has closed them. Their old numbers now belong to the program.

        Called between boundaries. If the record cannot be opened any more, for example after dropping privileges, no
        file is opened. `generation` counts earlier calls at the time when a closed file was found. If another thread has
        opened the files since, the call does nothing.
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
        """Write the rest of a line. `error` is the errno of the failed write, or 0 after a partial write."""
        with self._lock:
            if self._stopped:
                return
            journal = self._journal
            before = journal.written
            if error:
                journal.recover(data, OSError(error, os.strerror(error)))
            else:
                journal.write(data)
            self._native.use_journal(journal.descriptor, journal.written - before, 0)

    def write(self, line: bytes, read: int) -> None:
        """Append a line that took `read` bytes of /proc. Neither is I/O of the program."""
        with self._lock:
            journal = self._journal
            if not self._stopped and journal.is_ours():
                before = journal.written
                journal.write(line)
                self._native.use_journal(journal.descriptor, journal.written - before, read)

    def shutdown(self, *, forked: bool = False) -> None:
        """Stop recording and close the descriptors."""
        if forked:  # the thread that holds the lock may not exist in the child
            self._lock = Lock()
        with self._lock:
            self._stopped = True
            self._native.stop()
            self._watermark.close()
            close_quietly(self._io)
            self._io = -1
            self._journal.close()

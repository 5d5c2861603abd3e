"""What the boundaries of one process have to know of each other.

Compiled (`_boundary.c`), the ledger takes boundaries itself, with their lines: those of an operation that ends well, has
no other boundary between its two, and whose name is plain text. It needs no lock, as no other thread can run Python code
meanwhile. All else, and everything where there is no compiled code, is left to the recorder.
"""

from __future__ import annotations

from otel_memwatch.in_target.operations.boundary import COMPILED
from otel_memwatch.record.segments import Segments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.counters import Reading
    from otel_memwatch.in_target.operations.opened import Opened

__all__ = ["WHOLE", "Ledger", "PlainLedger"]

WHOLE = -1
"""All of a line has been written."""


class PlainLedger:
    """Numbers are of bytes, where nothing else is said."""

    __slots__ = (
        "_gaps",
        "_segments",
        "asks",
        "busy",
        "counted",
        "error",
        "genuine",
        "id",
        "ignored",
        "io",
        "journal",
        "last",
        "modules",
        "number",
        "open",
        "own_read",
        "per_thread",
        "place",
        "quick",
        "read_before",
        "reset",
        "size",
        "slack",
        "stale",
        "status",
        "written",
        "written_before",
    )

    genuine: int
    """`ru_maxrss` of at least this much is the watermark of this process, not an inherited one."""
    last: int
    """Resident size at the last boundary."""
    slack: int
    """A watermark so much below that has been started anew by somebody else."""
    error: int
    """By how much the watermark may differ from the truth."""
    per_thread: bool
    """`error` grows with the number of threads, so that it has to be asked for each time."""
    ignored: int
    """Page faults between reading and reset that are this library's own."""
    number: int
    """How many boundaries there have been."""
    open: int
    """How many operations are open."""
    id: int
    """The id of the operation that was opened last."""
    busy: bool
    """A boundary is being taken by the thread that has the recorder's lock."""
    stale: float
    """The moment from which on a boundary looks around first, in monotonic seconds."""
    counted: Reading
    """The process's totals as they were read last."""
    quick: bool
    """Compiled code may take boundaries: the watermark can be started anew, all lines are quickly written."""
    own_read: int
    """What compiled code has read for that."""
    written: int
    """What it has written to the journal since the recorder looked around."""
    place: int
    """Where in the journal's file the next line was to be written then."""
    read_before: int
    """What Python code had read itself until then; `written_before`: and written, without what starts the watermark."""
    written_before: int
    modules: int
    """How many modules the program had imported then."""
    asks: bool
    """A GPU library is imported that may be used from any moment on: the recorder has to look around."""
    reset: int
    """Descriptor of `/proc/self/clear_refs`; `size`: of `statm`; `status`: of `status`; `io`: of `io`; `journal`: of the lines."""
    size: int
    status: int
    io: int
    journal: int

    def __init__(self) -> None:
        self.genuine = self.last = self.slack = self.error = self.ignored = self.number = self.open = (
            self.id
        ) = 0
        self.own_read = self.written = 0
        self.busy = self.quick = self.per_thread = False
        self.stale = 0.0
        self._segments, self._gaps = Segments(), Segments()

    def begin(self, opened: Opened, name: str, parent: str | None, thread: int, more: bytes, /) -> int | None:
        """Take the boundary of an opening and write its line; `more`: the rest of that.

        Returns how many bytes of the line have been written, or `WHOLE`; `None`: nothing has been done.
        """

    def finish(self, opened: Opened, now: float, more: bytes | None, /) -> int | None:
        """The same for a closing without an error, where no other boundary has been taken since the opening.

        `more`: the rest of the line; `None`: what it says of I/O is to be found out.
        """

    def fold(self, segment: int, gap: int, /) -> None:
        """The segment that ended at the last boundary was so large, or up to `gap` larger between reading and reset."""
        self._segments.push(self.number, segment)
        if gap:
            self._gaps.push(self.number, segment + gap)

    def since(self, number: int, /) -> tuple[int | None, int]:
        """The largest segment that ended after a boundary (`None`: there was none), and what may have been missed.

        The latter is the largest size that any of those boundaries cannot have seen; 0 where all saw everything.
        """
        return self._segments.since(number), self._gaps.since(number) or 0

    def forget(self) -> None:
        """Nothing that was before now will be asked for."""
        self._segments.clear()
        self._gaps.clear()


if TYPE_CHECKING or not COMPILED:
    Ledger = PlainLedger
else:
    from otel_memwatch.in_target.operations._boundary import Ledger

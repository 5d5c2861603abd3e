"""The plain values that operations are made of. Sizes are bytes, times monotonic seconds, `None` is "not known"."""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know: `typing` costs every watched program 9 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    Ids = tuple[str, str, str | None, bool]
    """Trace, span and parent span of an operation whose ids a tracer has given, and whether that exports the span."""
    Used = tuple[float, float, int, int]
    """CPU time in user and kernel mode in seconds, minor and major page faults: since the start of the process."""
    Moved = tuple[int, int, int, int]
    """Bytes read from and written to storage, bytes passed to read and to write calls."""
    Peak = tuple[int | None, int | None, int | None, str]
    """Largest size, its lower and upper bound, and the certainty, as in `Figures`."""

    class OpeningBoundary(Protocol):
        """What a recording of boundaries keeps of an operation that it has opened."""

        @property
        def id(self) -> int:
            """The number that stands in both of its lines."""

    class Boundaries(Protocol):
        """Takes the boundaries of this process's operations and writes their lines.

        There are two: `plain.PlainBoundaries` says in Python how it is done, `native.NativeBoundaries` does the same
        in compiled code. A test drives both with the same programs and compares what they write.
        """

        def open(
            self, name: str, trace: str, span: str, parent: str | None, more: bytes, /
        ) -> OpeningBoundary | None:
            """Open an operation; `more` ends its line. `None`: this is not the process that it was made for."""

        def close(self, opening: Any, error: str | None, more: bytes, /) -> bool | None:
            """Close it; false where it is closed, or nothing is recorded any more. `None` as above."""

        def figures(self, opening: Any, /) -> tuple[Peak, int | None, int | None, Moved | None] | None:
            """Peak, sizes at both ends and I/O of an operation that was closed; `None` while it is open."""

        def shutdown(self, *, forked: bool = False) -> None:
            """Record nothing more, give the descriptors back; `forked`: whoever has a lock may not be there."""

    class TracerSpan(Protocol):
        """A span of the program's own tracer: `tracing.ProgramSpan`."""

        def attach(self) -> None:
            """Make it the current span of the running context."""

        def detach(self) -> None:
            """Undo the last `attach`."""

        def end(self, figures: Figures | None, error: BaseException | None) -> None:
            """Put the figures on it, the exception too, and end it."""

    class LiveRecorder(Protocol):
        """What a live operation needs of its recorder."""

        pid: int
        boundaries: Boundaries

        def close(
            self,
            live: LiveOperation,
            error: str | None = None,
            attributes: Mapping[str, object] | None = None,
        ) -> bool:
            """Close it; false where nothing was done."""

        def figures(self, live: LiveOperation) -> Figures | None:
            """Its figures; `None` while it is open."""


class Moment:
    """What the process's memory and use were at a boundary."""

    __slots__ = ("doubt", "rss", "segment", "used")

    def __init__(
        self, segment: int | None = None, rss: int | None = None, used: Used | None = None, doubt: int = 0
    ) -> None:
        self.segment = segment
        """The largest resident size since the boundary before; of the whole life where nothing is reset."""
        self.rss = rss
        """The present size."""
        self.used = used
        self.doubt = doubt
        """By how much a peak may have been missed between reading the watermark and its reset, or `FOREIGN`."""


class ProcessTotals:
    """Totals of the process at one moment that need system calls of their own."""

    __slots__ = ("children", "moved")

    def __init__(self, children: Used | None, moved: Moved | None) -> None:
        self.children = children
        """What the children have used that the process has waited for."""
        self.moved = moved
        """I/O of the process and those children, but not this library's own."""


class Figures:
    """What is known of a closed operation; sizes in bytes, `None` for unknown."""

    __slots__ = ("_moved", "certainty", "end", "gpu", "high", "low", "peak", "start")

    def __init__(
        self,
        peak: Peak,
        start: int | None,
        end: int | None,
        moved: Moved | None,
        gpu: dict[str, Any] | None,
    ) -> None:
        self.peak, self.low, self.high, self.certainty = peak
        self.start, self.end, self._moved, self.gpu = start, end, moved, gpu

    peak: int | None
    """Largest resident size of the process inside the operation; the lower end of an interval."""
    low: int | None
    high: int | None
    certainty: str
    """"exact", "interval", "censored" (not above `high`) or "sampled" (unknown)."""
    start: int | None
    """Resident size at the opening."""
    end: int | None
    """Resident size at the closing."""
    gpu: dict[str, Any] | None

    def io(self) -> Moved | None:
        """Bytes read from storage, written to storage, passed to read calls and to write calls."""
        return self._moved


class LiveOperation:
    """An operation of this process from its opening on."""

    __slots__ = (
        "closed",
        "gpu",
        "is_phase",
        "opening",
        "parent",
        "phase",
        "program_span",
        "recorder",
        "span",
        "trace",
    )

    def __init__(
        self,
        recorder: LiveRecorder,
        parent: LiveOperation | None,
        trace: str,
        span: str,
        opening: OpeningBoundary | None,
    ) -> None:
        self.recorder = recorder
        self.parent = parent
        self.trace = trace
        self.span = span
        self.opening = opening
        """`None`: it could not be recorded."""
        self.closed = opening is None
        self.is_phase = False
        """`mark` has begun it."""
        self.phase: LiveOperation | None = None
        """The phase that `mark` has begun inside it last."""
        self.program_span: TracerSpan | None = None
        """The span of the program's own tracer that stands for it."""
        self.gpu: dict[str, Any] | None = None

    @property
    def id(self) -> int:
        """The number that stands in both of its lines; 0: it could not be recorded."""
        return 0 if self.opening is None else self.opening.id

    @property
    def figures(self) -> Figures | None:
        """Its figures; `None` while it is open."""
        return self.recorder.figures(self)

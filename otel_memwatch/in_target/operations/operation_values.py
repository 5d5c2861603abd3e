"""Plain values of operations. Sizes are bytes, times are monotonic seconds, `None` is unknown."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; `typing` would cost every watched program 9 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    Ids = tuple[str, str, str | None, bool]
    """Trace, span and parent span from a tracer, and whether the tracer exports the span."""
    CpuTotals = tuple[float, float, int, int]
    """Since the start of the process: CPU seconds in user and kernel mode, minor and major page faults."""
    IoTotals = tuple[int, int, int, int]
    """Bytes read from and written to storage, bytes passed to read and to write calls."""
    Peak = tuple[int | None, int | None, int | None, str]
    """Largest size, its lower and upper bound, and the certainty, as in `Figures`."""

    class OpeningBoundary(Protocol):
        """State of an open operation in `Boundaries`."""

        @property
        def id(self) -> int:
            """Return the operation's number, which both of its lines contain."""

    class Boundaries(Protocol):
        """Interface that handles the boundaries of this process's operations and writes their lines.

        `plain.PlainBoundaries` implements it in Python, and `native.NativeBoundaries` in compiled code. A test runs the
        same programs with both and compares their output.
        """

        def open(
            self, name: str, trace: str, span: str, parent: str | None, more: bytes, /
        ) -> OpeningBoundary | None:
            """Open an operation; `more` is the rest of its line. Returns `None` in a forked child."""

        def close(self, opening: Any, error: str | None, more: bytes, /) -> bool | None:
            """Close an operation. Returns false if it is closed or recording has stopped, `None` in a forked child."""

        def figures(self, opening: Any, /) -> tuple[Peak, int | None, int | None, IoTotals | None] | None:
            """Return peak, sizes at start and end, and I/O of a closed operation; `None` while it is open."""

        def write(self, line: bytes, read: int) -> None:
            """Append a line that took `read` bytes of /proc. Neither is I/O of the program."""

        def shutdown(self, *, forked: bool = False) -> None:
            """Stop recording and close the descriptors. `forked`: threads of the parent may hold locks."""

    class TracerSpan(Protocol):
        """A span of the program's tracer: `tracing.ProgramSpan`."""

        def attach(self) -> None:
            """Make it the current span of the current context."""

        def detach(self) -> None:
            """Undo the last `attach`."""

        def end(self, figures: Figures | None, error: BaseException | None) -> None:
            """Set the figures and the exception on the span, and end it."""

    class LiveRecorder(Protocol):
        """Interface of the recorder for live operations."""

        pid: int
        boundaries: Boundaries

        def close(
            self,
            live: LiveOperation,
            error: str | None = None,
            attributes: Mapping[str, object] | None = None,
        ) -> bool:
            """Close an operation; return false if nothing was done."""

        def figures(self, live: LiveOperation) -> Figures | None:
            """Return the figures of an operation; `None` while it is open."""


class Moment:
    """Memory and resource use of the process at a boundary."""

    __slots__ = ("doubt", "rss", "segment", "used")

    def __init__(
        self,
        segment: int | None = None,
        rss: int | None = None,
        used: CpuTotals | None = None,
        doubt: int = 0,
    ) -> None:
        self.segment = segment
        """Largest resident size since the previous boundary, or since the process started if nothing is reset."""
        self.rss = rss
        """Current resident size."""
        self.used = used
        self.doubt = doubt
        """Upper bound of a peak missed between reading and resetting the high-water mark, or `FOREIGN`."""


class ProcessTotals:
    """Totals of the process at one moment that need additional system calls."""

    __slots__ = ("children", "moved")

    def __init__(self, children: CpuTotals | None, moved: IoTotals | None) -> None:
        self.children = children
        """Resource use of children that the process has waited for."""
        self.moved = moved
        """I/O of the process and those children, without that of this library."""


class Figures:
    """Figures of a closed operation; sizes in bytes, `None` is unknown."""

    __slots__ = ("_moved", "certainty", "end", "gpu", "high", "low", "peak", "start")

    def __init__(
        self,
        peak: Peak,
        start: int | None,
        end: int | None,
        moved: IoTotals | None,
        gpu: dict[str, Any] | None,
    ) -> None:
        self.peak, self.low, self.high, self.certainty = peak
        self.start, self.end, self._moved, self.gpu = start, end, moved, gpu

    peak: int | None
    """Largest resident size of the process during the operation; for an interval, its lower bound."""
    low: int | None
    high: int | None
    certainty: str
    """"exact", "interval", "censored" (not above `high`) or "sampled" (unknown)."""
    start: int | None
    """Resident size at the opening, in bytes."""
    end: int | None
    """Resident size at the closing, in bytes."""
    gpu: dict[str, Any] | None

    def io(self) -> IoTotals | None:
        """Return bytes read from storage, written to storage, passed to read calls and passed to write calls."""
        return self._moved


class LiveOperation:
    """An operation of this process that has been opened."""

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
        """`None` if it could not be recorded."""
        self.closed = opening is None
        self.is_phase = False
        """True if `mark` began it."""
        self.phase: LiveOperation | None = None
        """Last phase that `mark` began inside it."""
        self.program_span: TracerSpan | None = None
        """Its span of the program's tracer."""
        self.gpu: dict[str, Any] | None = None

    @property
    def id(self) -> int:
        """Return the operation's number, which both of its lines contain; 0 if it could not be recorded."""
        return 0 if self.opening is None else self.opening.id

    @property
    def figures(self) -> Figures | None:
        """Return its figures; `None` while it is open."""
        return self.recorder.figures(self)

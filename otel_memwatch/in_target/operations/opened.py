"""An operation of this process: what its two boundaries saw, and what follows from that."""

from __future__ import annotations

from otel_memwatch.in_target.operations.counters import io_totals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from otel_memwatch.in_target.operations.counters import Reading
    from otel_memwatch.in_target.operations.recorder import Recorder
    from otel_memwatch.in_target.operations.tracing import NativeSpan
    from otel_memwatch.in_target.operations.watermark import Moment

    Peak = tuple[int | None, int | None, int | None, str]
    """Largest size, lower and upper bound in bytes, and certainty, as in `Figures`."""
    Closing = tuple[float, Peak, Moment, Moment, Reading, Reading, dict[str, Any] | None]
    """What a closed operation leaves for its `Figures`, and the time of its closing."""


class Opened:
    """An operation of this process from its opening on."""

    __slots__ = (
        "before",
        "closed",
        "closing",
        "first",
        "id",
        "mark",
        "native",
        "number",
        "owner",
        "parent",
        "recorder",
        "span",
        "time",
        "trace",
    )

    id: int
    number: int
    """Number of the boundary at its opening; -1: it has none of its own."""
    time: float
    """Monotonic seconds at which it began."""
    first: Moment
    """What the boundary at its opening saw."""
    before: Reading
    """The process's totals that it began with."""

    def __init__(self, recorder: Recorder, parent: Opened | None, trace: str, span: str) -> None:
        self.recorder = recorder
        self.parent = parent
        self.trace = trace
        self.span = span
        self.closed = False
        self.closing: Closing | None = None
        """`None`: it is open, or is being closed."""
        self.owner: object = None
        self.mark: Opened | None = None
        """The phase that `mark` has begun inside it last."""
        self.native: NativeSpan | None = None

    @property
    def figures(self) -> Figures | None:
        """Its figures; `None` while it is open."""
        return None if self.closing is None else Figures(self.closing)


class Figures:
    """What is known of a closed operation; sizes in bytes, `None` for unknown."""

    __slots__ = ("_after", "_before", "certainty", "end", "gpu", "high", "low", "peak", "start")

    def __init__(self, closing: Closing) -> None:
        _, peak, first, last, self._before, self._after, self.gpu = closing
        self.start, self.end = first[1], last[1]
        self.peak, self.low, self.high, self.certainty = peak

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

    def io(self) -> tuple[int, int, int, int] | None:
        """Bytes read from storage, written to storage, passed to read calls and to write calls."""
        return (0, 0, 0, 0) if self._before is self._after else io_totals(self._before, self._after)

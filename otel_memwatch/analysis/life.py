"""What is known of one process's memory, folded one record at a time."""

from __future__ import annotations

from otel_memwatch.model import ProcessEvent
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis.run_conditions import Basis
    from otel_memwatch.model import ProcessRecord

ALIVE_AT_END = "alive at the end"
"""Note of the last figures of a process that outlived the recording."""


class Life:
    """What is known of one process's memory.

    Attributes:
        low: bytes that it certainly had during the run, first seen `at` (monotonic seconds).
        bound: bytes that it certainly never exceeded; `None`: not known.
        told: whether we waited for it ourselves.
        max_rss: what wait4 told then; `None`: nothing.
        final: whether its last figures were taken at the end of the run.

    """

    __slots__ = (
        "_before", "_ceiling", "_segmented", "at", "bound", "end", "final", "low", "max_rss", "pid", "start", "told",
    )  # fmt: skip

    def __init__(self, pid: int, start: float, basis: Basis) -> None:
        self.pid = pid
        self.start = start
        self.end: float | None = None
        self.low = 0
        self.at: float | None = None
        self.bound: int | None = None
        self.told = self.final = self._segmented = False
        self.max_rss: int | None = None
        self._before: int | None = -1 if basis.joined and start < basis.started else None
        self._ceiling = 0

    def take(self, record: ProcessRecord, basis: Basis) -> None:
        """Takes in what a record says of its memory."""
        if record.rss is not None:
            self.raise_to(record.rss, record.time)
        if record.peak is not None:
            self.observe_peak(record.peak, record.time)
        if record.max_rss is not None and record.childless and record.max_rss > basis.floor:
            self.raise_to(record.max_rss, record.time)
        # wait4's maximum may be a child's: a bound of the process's own is nearer.
        self._ceiling = max(self._ceiling, record.peak_bound or record.max_rss or 0)
        if record.event is ProcessEvent.EXIT:
            self.end, self.max_rss = record.time, record.max_rss
            self.told = record.exit_code is not None or record.signal is not None
            # Of a process that others waited for, what was read last is no bound: it may have grown since.
            if self.told and record.peak_bound is not None:
                self.bound = self.known
            self._close_segments()
        elif record.note == ALIVE_AT_END:
            self.final = True
            self.bound = self.known or None

    def add_segment(self, value: int, time: float) -> None:
        """It had `value` bytes at its worst between two resets of its watermark, as it told itself."""
        self._segmented = True
        self.raise_to(value, time)
        self._close_segments()

    def _close_segments(self) -> None:
        """What it told of all times between resets, and wait4 of the time since the last, is all there was."""
        if self._segmented and self.told and self.max_rss is not None:
            self.bound = self.known

    def reopen(self) -> None:
        """Takes back that its last figures were taken at the end of the run: nobody saw that end."""
        if self.end is None:
            self.final, self.bound = False, None

    def observe_peak(self, peak: int, time: float) -> None:
        """Takes in a watermark.

        That of a process that was there before the run may be older than the run: it says what the process
        certainly had only once it has risen.
        """
        self._ceiling = max(self._ceiling, peak)
        if self._before == -1:
            self._before = peak
        if self._before is None or peak > self._before:
            self._before = None
            self.raise_to(peak, time)
        elif self.bound is not None:
            self.bound = self.known

    def raise_to(self, value: int, time: float) -> None:
        """It certainly had `value` bytes, seen at `time`."""
        if value > self.low:
            self.low, self.at = value, time
        if self.bound is not None and value > self.bound:
            self.bound = value

    @property
    def known(self) -> int:
        """Bytes that it did not exceed up to its last figures."""
        return max(self.low, self._ceiling)

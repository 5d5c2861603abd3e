"""Stalls over the time of a run, in at most `MOST` equal periods: for the page and for operations."""

from __future__ import annotations

from otel_memwatch.record.fields import number
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 256
_FIRST = 0.1
"""Seconds of a period at first; it doubles when the run is longer than `MOST` periods."""
REREAD, READ, DISK, THROTTLED, CONTENDED, WRITES = KINDS = range(6)
"""Kinds of waiting: for pages read again, for all pages read, for storage, for a CPU limit, for processors that others use, and for
pages to be written."""


class StallPeriod(NamedTuple):
    """Shares of a period without progress, 0 to 1. Times are seconds since the start of the run."""

    start: float
    end: float
    memory: float
    disk: float
    cpu: float
    contention: float = 0.0


_LENGTHS = len(StallPeriod._fields) - 1, len(StallPeriod._fields)
"""Numbers of a period in `run.json`: older records lack the contention."""


class StallCurve:
    """Seconds of waiting of each kind, period by period. Windows without waiting cost nothing."""

    def __init__(self) -> None:
        self._width = _FIRST
        self._waits: dict[int, list[float]] = {}

    def add(self, kind: int, start: float, end: float, seconds: float) -> None:
        """Add seconds of waiting, spread evenly from start to end."""
        if seconds <= 0 or end <= start:
            return
        start = max(0.0, start)
        while end > MOST * self._width:
            self._width *= 2
            before, self._waits = self._waits, {}
            for index, waits in before.items():
                both = self._waits.setdefault(index // 2, [0.0] * len(KINDS))
                both[:] = map(sum, zip(both, waits, strict=True))
        for index in range(int(start / self._width), int(end / self._width) + 1):
            within = min(end, (index + 1) * self._width) - max(start, index * self._width)
            if within > 0:
                waits = self._waits.setdefault(index, [0.0] * len(KINDS))
                waits[kind] += seconds * within / (end - start)

    def total(self, kind: int) -> float:
        """Return the seconds of one kind."""
        return sum(waits[kind] for waits in self._waits.values())

    def periods(
        self,
        seconds: float,
        *,
        memory: int,
        memory_seconds: float,
        cpu_seconds: float,
        contended_seconds: float = 0.0,
    ) -> list[StallPeriod]:
        """Return the periods with any stall.

        Args:
            seconds: duration of the run.
            memory: kind that counts as waiting for memory, `REREAD`, `READ` or `WRITES`.
            memory_seconds: waiting for memory in the whole run; bounds that hold only for all of it lower each period alike.
            cpu_seconds: likewise, time for which a CPU limit stopped the run.
            contended_seconds: likewise, time in which it waited for processors that other programs used.
        """
        wanted = {memory: memory_seconds, THROTTLED: cpu_seconds, CONTENDED: contended_seconds}
        factors = {
            kind: part / total if (total := self.total(kind)) > 0 else 0.0 for kind, part in wanted.items()
        }
        found = []
        for index, waits in sorted(self._waits.items()):
            start, end = index * self._width, min(seconds, (index + 1) * self._width)
            if end <= start:
                continue
            length = end - start
            shares = [min(1.0, waits[kind] * factor / length) for kind, factor in factors.items()]
            of_disk = max(0.0, min(1.0, waits[DISK] / length) - shares[0])
            period = (shares[0], of_disk, *shares[1:])
            if any(round(share, 3) for share in period):
                found.append(
                    StallPeriod(round(start, 3), round(end, 3), *(round(share, 3) for share in period))
                )
        return found


def between(periods: Sequence[StallPeriod], start: float, end: float) -> tuple[float, ...]:
    """Return the shares of memory, disk, CPU and contention of a part of the run. It is as fine as the periods."""
    waits = [0.0, 0.0, 0.0, 0.0]
    for period in periods:
        within = min(end, period.end) - max(start, period.start)
        if within > 0:
            waits = [sum_ + share * within for sum_, share in zip(waits, period[2:], strict=True)]
        elif end <= start and period.start <= start < period.end:
            return period[2:]
    length = max(end - start, 1e-9)
    return tuple(round(min(1.0, wait / length), 4) for wait in waits)


def parse(written: object) -> tuple[StallPeriod, ...]:
    """Read the periods of `run.json`; anything malformed is left out."""
    entries: Iterable[object] = written[:MOST] if isinstance(written, list) else ()
    found = []
    for entry in entries:
        values = [number(value) for value in entry] if isinstance(entry, list) else []
        known = [value for value in values if value is not None and value >= 0]
        if len(known) == len(values) in _LENGTHS and known[0] < known[1]:
            found.append(StallPeriod(*known))
    return tuple(found)

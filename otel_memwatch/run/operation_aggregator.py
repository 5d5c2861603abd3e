"""Aggregate the operations of a run one by one, while it is recorded or when its record is read.

Up to `LIMIT` the aggregator keeps all. Of more it keeps the parts of a digest (`run/operation_digest.py`), in memory that
does not grow with their number.
"""

from __future__ import annotations

from math import inf

from otel_memwatch.record.operation_index import OperationRows
from otel_memwatch.record.operation_lines import row_of
from otel_memwatch.run.attribution import Candidates
from otel_memwatch.run.gpu import allocator_figures
from otel_memwatch.run.growth import Repeats
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.run.peak_holders import Moments, PeakHolders
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.record.operation_lines import OperationRow

LIMIT = 1000
"""Number of operations up to which every one is kept, and listed in every report."""

LARGEST = 64
_ON_DEVICES = 512
"""Operations that are kept for their GPU memory."""
_NAMES = 1000
"""Names that have totals; the operations of others are counted."""
_HOLDERS, _HOLDERS_OF_MANY = 256, 8
"""Names, for each process, of operations that may hold its peak; the second limit applies above 16 marking processes."""
_MANY = 16
_PROCESSES = 1000


class NameTotals(NamedTuple):
    """All closed operations of one name, the number at its end left out."""

    name: str
    number: int
    seconds: float
    longest: float
    mean_peak: float | None
    """Bytes, of their processes; `None`: none is known."""
    largest_peak: int | None
    cpu_seconds: float | None
    """CPU time of their processes, with the children that these waited for; `None`: not known."""
    failed: int


class _Name:
    """Totals of the operations of one name, and the largest of them."""

    __slots__ = ("count", "cpu", "failed", "largest", "longest", "peak_sum", "peaks", "seconds")

    def __init__(self, first: OperationRow) -> None:
        self.count = self.peaks = self.failed = 0
        self.seconds = self.longest = self.peak_sum = 0.0
        self.cpu: float | None = None
        self.largest = first
        """The one that certainly had most."""

    def add(self, row: OperationRow) -> None:
        seconds = row.end - row.start
        self.count += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        if row.peak is not None:
            self.peaks += 1
            self.peak_sum += row.peak
        if row.cpu is not None:
            self.cpu = row.cpu + (self.cpu or 0.0)
        if row.failed:
            self.failed += 1
        if row.low > self.largest.low:
            self.largest = row

    def totals(self, name: str) -> NameTotals:
        return NameTotals(
            name,
            self.count,
            self.seconds,
            self.longest,
            self.peak_sum / self.peaks if self.peaks else None,
            self.largest.peak,
            self.cpu,
            self.failed,
        )


class OperationAggregator:
    """Bounded aggregate of operations, updated as they are closed. Not thread-safe.

    Attributes:
        closed: number of closed operations.
        to_export: number of these that the program does not export itself.
        unnamed: number of these with names beyond the limit.
        pids: the processes that marked them, up to a thousand.
        repeats: memory at the end of each operation, by process and name.

    """

    def __init__(self) -> None:
        self.closed = self.to_export = self.unnamed = 0
        self.pids: set[int] = set()
        self.repeats = Repeats()
        self._all: list[OperationRow] | None = []
        """`None`: there were too many."""
        self._table: OperationRows | None = None
        """Table of all operations, once requested."""
        self._names: dict[str, _Name] = {}
        self._series: dict[str, _Name] = {}
        """Totals of names with the number at their end."""
        self._holders: dict[int, PeakHolders] = {}
        """By process."""
        self._moments = Moments()
        """Moments at which the peaks so far were first seen."""
        self._on_devices: dict[tuple[str, int, bool], tuple[float, OperationRow]] = {}
        """The largest allocator peak of each device and process, in bytes: its lower and its upper bound."""
        self._has_all_devices = True

    @property
    def too_many(self) -> bool:
        """True once some operations are no longer kept."""
        return self._all is None

    def close(self, row: OperationRow) -> None:
        """Add a closed operation. Costs a few microseconds."""
        self.closed += 1
        self.to_export += not row.exported
        self.repeats.add(row)
        if self._all is None:
            self._add(row)
            return
        # Built while the run continues, not at its end.
        self._all.append(row._replace(source=row.operation()))
        if len(self._all) > LIMIT:
            self.keep_few()

    def keep_few(self) -> None:
        """Keep only the parts of a digest from now on."""
        everything, self._all = self._all or [], None
        for row in everything:
            self._add(row)

    def _add(self, row: OperationRow) -> None:
        pid, name = row.pid, row.name
        known = self._series.get(name) or self._series_of(name, row)
        if known is None:
            self.unnamed += 1
        else:
            known.add(row)
        holders = self._holders.get(pid)
        if holders is None:
            if len(self.pids) < _PROCESSES:
                self.pids.add(pid)
            if row.low > 0 and len(self._holders) < _PROCESSES:
                holders = self._holders[pid] = PeakHolders()
        if holders is not None and (row.high < 0 or row.high >= holders.best):
            holders.add(row, _HOLDERS if len(self._holders) <= _MANY else _HOLDERS_OF_MANY)
        self._moments.add(row)
        if row.has_gpu:
            self._add_gpu(row)

    def _add_gpu(self, row: OperationRow) -> None:
        for figures in allocator_figures(row.operation()):
            held = max(figures.peak.bytes, figures.reserved_peak or 0)
            high = inf if figures.peak.high is None else figures.peak.high
            for size, is_high in ((held, False), (high, True)):
                key = figures.device, row.pid, is_high
                largest = self._on_devices.get(key)
                if largest is None and len(self._on_devices) >= _ON_DEVICES:
                    self._has_all_devices = False
                elif largest is None or size > largest[0]:
                    self._on_devices[key] = size, row

    def _series_of(self, name: str, row: OperationRow) -> _Name | None:
        """Return the totals of a name; `None`: there are too many names."""
        series = series_name(name)
        known = self._names.get(series)
        if known is None and len(self._names) < _NAMES:
            known = self._names[series] = _Name(row)
        if known is not None and len(self._series) < 4 * _NAMES:
            self._series[name] = known
        return known

    def look_at(
        self,
        moments: Iterable[float],
        interval: float,
        still_open: Iterable[RecordedOperation],
        reading: float = 0.0,
    ) -> None:
        """Set the moments (monotonic seconds) at which samples first saw the peaks so far.

        The samples were `interval` seconds apart, and reading one took up to `reading` seconds.
        """
        self._moments.set(moments, interval, map(row_of, still_open), reading)

    def boundaries(self, still_open: Iterable[RecordedOperation]) -> Iterable[float]:
        """Yield the boundaries of kept and of open operations."""
        for row in self._kept():
            yield row.start
            if row.end < inf:  # seen open at a moment
                yield row.end
        for operation in still_open:
            yield operation.start

    def _kept(self) -> list[OperationRow]:
        if self._all is not None:
            return self._all
        return [
            *self.largest_of_names(),
            *(row for holders in self._holders.values() for row in holders),
            *self._moments,
            *self.on_devices(),
        ]

    def table(self, still_open: Sequence[RecordedOperation]) -> OperationRows | None:
        """Return all operations; `None` if they are too many."""
        if self._all is None or len(self._all) + len(still_open) > LIMIT:
            return None
        return self._listed(self._all, still_open)

    def _listed(self, closed: list[OperationRow], still_open: Sequence[RecordedOperation]) -> OperationRows:
        """Return all operations in their order; if all are closed, the order is computed once."""
        if still_open:
            return OperationRows([*closed, *map(row_of, still_open)])
        if self._table is None or len(self._table) != len(closed):
            self._table = OperationRows(closed)
        return self._table

    def candidates(self, still_open: Sequence[RecordedOperation]) -> Candidates:
        """Return the candidates for the attribution of peaks."""
        if self._all is not None:
            return Candidates(self._listed(self._all, still_open))
        rows = *self._kept(), *self._moments.recent, *map(row_of, still_open)
        # One that was open at a moment may come again, closed.
        once = {(row.pid, row.identity, row.start): row for row in rows}
        return Candidates(OperationRows(once.values()), has_all_devices=self._has_all_devices)

    def totals(self) -> list[NameTotals]:
        """Return the totals by name, the longest total time first."""
        totals = [known.totals(name) for name, known in self._names.items()]
        return sorted(totals, key=lambda one: -one.seconds)

    def largest_of_names(self) -> list[OperationRow]:
        """Return the operation of each name that certainly had most."""
        return [known.largest for known in self._names.values()]

    def on_devices(self) -> list[OperationRow]:
        """Return the operations with the largest GPU allocator peaks, for each device and process."""
        return list(
            {(row.pid, row.identity, row.start): row for _, row in self._on_devices.values()}.values()
        )

"""Batches of samples, and periodic actions of the sampling thread.

Processing each sample alone would find all caches cold.
"""

from __future__ import annotations

import math

from otel_memwatch import catalog
from otel_memwatch.model import ProcessRecord
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot, Value
    from otel_memwatch.run.aggregate import RunAggregator
    from otel_memwatch.run.curves import Curves
    from otel_memwatch.run.sample_history import SampleHistory


_SAMPLES = 128
"""Largest number of samples in a batch."""


class SampleBatcher:
    """Queue of records in their order. It is processed when full, and before each access to a result."""

    def __init__(self) -> None:
        self._aggregator: RunAggregator | None = None
        self._history: SampleHistory | None = None
        self._curves: Curves | None = None
        self._columns: Sequence[Column] = ()
        self._waiting: list[ProcessRecord | tuple[Sequence[Column], Snapshot]] = []
        self._samples = 0
        self._before: Sequence[Value] | None = None
        """`_figures` of the last record that was processed."""

    @property
    def history(self) -> SampleHistory | None:
        """Return the samples so far in the form that operations need; `None`: it has none."""
        self._process_batch()
        return self._history

    @property
    def aggregator(self) -> RunAggregator | None:
        """Return the figures so far; `None` before `open`."""
        self._process_batch()
        return self._aggregator

    @property
    def curves(self) -> Curves | None:
        """Return the curves so far; `None` before `open`, and without a page."""
        self._process_batch()
        return self._curves

    def open(
        self, columns: Sequence[Column], info: Mapping[str, Any], *, drawn: bool = False, marked: bool = True
    ) -> None:
        """Create the consumers, which receive these columns of each sample.

        Args:
            columns: of the samples.
            info: `run.json` so far.
            drawn: include curves.
            marked: include the history that operations need.
        """
        from otel_memwatch.run.aggregate import RunAggregator

        self._aggregator = RunAggregator(columns, info)
        self._declare(columns)
        if marked:
            from otel_memwatch.run.sample_history import SampleHistory

            self._history = SampleHistory(self._aggregator.conditions)
        if drawn:
            from otel_memwatch.run.curves import Curves

            self._curves = Curves(columns, info)

    def join(self, columns: Sequence[Column]) -> None:
        """Receive these columns of the following samples: those so far, and others of devices."""
        self._process_batch()
        if self._aggregator is not None:
            self._aggregator.join(columns)
        self._declare(columns)
        self._curves = None  # the page reads the record instead

    def _declare(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples. Those read at every sample come first."""
        from otel_memwatch.record.schema import sample_maker

        self._columns, self._make = columns, sample_maker(columns)
        self._fast = sum(not column.period for column in columns)
        self._no_slow = (None,) * (len(columns) - self._fast)
        self._machine = [
            place
            for place, column in enumerate(columns[: self._fast])
            if column.metric == catalog.SYSTEM_MEMORY_USAGE
        ]
        self._before = None

    def process(self, record: ProcessRecord) -> None:
        """Add a record of a process."""
        self._waiting.append(record)

    def sample(self, columns: Sequence[Column], snapshot: Snapshot) -> None:
        """Add a sample."""
        self._waiting.append((columns, snapshot))
        self._samples += 1
        if self._samples >= _SAMPLES:
            self._process_batch()

    def _process_batch(self) -> None:
        aggregator, history, curves = self._aggregator, self._history, self._curves
        if aggregator is None:
            return
        for record, alike in zip(self._waiting, list(self._alike()), strict=True):
            if isinstance(record, ProcessRecord):
                aggregator.process(record)
                if curves is not None:
                    curves.lives.add(record)
                continue
            columns, snapshot = record
            values: Sequence[Any] = snapshot.values
            if columns is not self._columns:
                known = dict(zip(columns, values, strict=True))
                values = [known.get(column) for column in self._columns]
            # With another time than in the record, a sample beside a boundary would give the page other bounds than the report.
            time = round(snapshot.time, TICK_DECIMALS)
            sample = self._make((time, *values))
            if alike:
                aggregator.pass_over(time, snapshot.missed)
            else:
                aggregator.add(sample, snapshot.missed)
            if history is not None:
                history.add(sample)
            if curves is not None:
                curves.add(sample)
        self._waiting.clear()
        self._samples = 0

    def _alike(self) -> Iterator[bool]:
        """Yield for each record of the batch whether it is a sample between two of the same values, and has no slow ones.

        Such a sample has nothing for the aggregator but its time. The machine's memory, which other programs change, does
        not count.
        """
        figures = [self._figures(record) for record in self._waiting]
        before, self._before = self._before, figures[-1] if figures else None
        neighbours = zip([before, *figures], figures, [*figures[1:], None])  # noqa: B905 - the first is longer
        for record, (before, now, after) in zip(self._waiting, neighbours, strict=True):
            alike = now is not None and before == now == after
            yield alike and record[1].values[self._fast :] == self._no_slow  # type: ignore[union-attr] # has figures

    def _figures(self, record: ProcessRecord | tuple[Sequence[Column], Snapshot]) -> Sequence[Value] | None:
        """Return the values of a sample without slow ones; `None` for a record of a process."""
        if isinstance(record, ProcessRecord) or record[0] is not self._columns:
            return None
        values = list(record[1].values[: self._fast])
        for place in self._machine:
            values[place] = None
        return values


class PeriodicAction:
    """An action of the sampling thread: once every `period` seconds, at the first sample at which it is due.

    Args:
        action: gets the time of the sample in monotonic seconds.
        period: 0 for every sample.
        due: time from which on it is due; may be set later.
    """

    def __init__(
        self, action: Callable[[float], object], period: float = 0.0, *, due: float = math.inf
    ) -> None:
        self._action, self.period, self.due = action, period, due

    def run_if_due(self, now: float) -> None:
        """Call the action if it is due."""
        if now >= self.due:
            self._action(now)
            self.due = now + self.period

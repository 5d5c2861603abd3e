"""Batches of samples while a run is recorded: processing each one alone would find all caches cold."""

from __future__ import annotations

from otel_memwatch.model import ProcessRecord
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot
    from otel_memwatch.run.aggregate import RunAggregator
    from otel_memwatch.run.curves import Curves
    from otel_memwatch.run.tick_history import TickHistory

_SAMPLES = 64
"""Largest number of samples in a batch."""


class SampleBatcher:
    """Queue of records in their order. It is processed when full, and before each access to a result."""

    def __init__(self) -> None:
        self._aggregator: RunAggregator | None = None
        self._history: TickHistory | None = None
        self._curves: Curves | None = None
        self._columns: Sequence[Column] = ()
        self._waiting: list[ProcessRecord | tuple[Sequence[Column], Snapshot]] = []
        self._samples = 0

    @property
    def history(self) -> TickHistory | None:
        """Return the samples so far in the form that operations need; `None` before `open`."""
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

    def open(self, columns: Sequence[Column], info: Mapping[str, Any], *, drawn: bool = False) -> None:
        """Create the consumers, which receive these columns of each sample. `drawn`: include curves."""
        from otel_memwatch.record.schema import sample_maker
        from otel_memwatch.run.aggregate import RunAggregator
        from otel_memwatch.run.tick_history import TickHistory

        self._aggregator, self._columns = RunAggregator(columns, info), columns
        self._history = TickHistory(self._aggregator.conditions)
        self._make = sample_maker(columns)
        if drawn:
            from otel_memwatch.run.curves import Curves

            self._curves = Curves(columns, info)

    def join(self, columns: Sequence[Column]) -> None:
        """Receive these columns of the following samples: those so far, and others of devices."""
        from otel_memwatch.record.schema import sample_maker

        self._process_batch()
        if self._aggregator is not None:
            self._aggregator.join(columns)
        self._columns, self._make = columns, sample_maker(columns)
        self._curves = None  # the page reads the record instead

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
        if aggregator is None or history is None:
            return
        for record in self._waiting:
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
            sample = self._make((snapshot.time, *values))
            aggregator.add(sample, snapshot.missed)
            history.add(sample)
            if curves is not None:
                curves.add(sample)
        self._waiting.clear()
        self._samples = 0

"""The tally and the curves of a run while it is recorded: some ticks at a time, since one alone finds all caches cold."""

from __future__ import annotations

from otel_memwatch.model import ProcessRecord
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot
    from otel_memwatch.run.aggregate import Tally
    from otel_memwatch.run.curves import Curves
    from otel_memwatch.run.tick_history import TickHistory

_TICKS = 16
"""Ticks that wait at most."""


class Folding:
    """Keeps what was recorded, in its order, until it is folded: at the latest when somebody asks for the tally."""

    def __init__(self) -> None:
        self._tally: Tally | None = None
        self._history: TickHistory | None = None
        self._curves: Curves | None = None
        self._columns: Sequence[Column] = ()
        self._waiting: list[ProcessRecord | tuple[Sequence[Column], Snapshot]] = []
        self._ticks = 0

    @property
    def history(self) -> TickHistory | None:
        """The ticks so far as operations will ask about them; `None` before `open`."""
        self._fold()
        return self._history

    @property
    def tally(self) -> Tally | None:
        """The tally of everything so far; `None` before `open`."""
        self._fold()
        return self._tally

    @property
    def curves(self) -> Curves | None:
        """The curves of everything so far; `None` before `open`, and where nobody wants them."""
        self._fold()
        return self._curves

    def open(self, columns: Sequence[Column], info: Mapping[str, Any], *, drawn: bool = False) -> None:
        """Begins to fold ticks of these columns; of those taken in before, what they have of them. `drawn`: curves too."""
        from otel_memwatch.run.aggregate import Tally
        from otel_memwatch.run.tick_history import TickHistory

        self._tally, self._columns = Tally(columns, info), columns
        self._history = TickHistory(columns, self._tally.conditions)
        if drawn:
            from otel_memwatch.run.curves import Curves

            self._curves = Curves(info)

    def process(self, record: ProcessRecord) -> None:
        """Takes in what is known of a process."""
        self._waiting.append(record)

    def tick(self, columns: Sequence[Column], snapshot: Snapshot) -> None:
        """Takes a tick in."""
        self._waiting.append((columns, snapshot))
        self._ticks += 1
        if self._ticks >= _TICKS:
            self._fold()

    def _fold(self) -> None:
        tally, history, curves = self._tally, self._history, self._curves
        if tally is None or history is None:
            return
        for record in self._waiting:
            if isinstance(record, ProcessRecord):
                tally.process(record)
                if curves is not None:
                    curves.lives.add(record)
                continue
            columns, snapshot = record
            if columns is not self._columns:
                known = dict(zip(columns, snapshot.values, strict=True))
                snapshot = snapshot._replace(values=tuple(known.get(column) for column in self._columns))
            tally.tick(snapshot)
            history.add(snapshot)
            if curves is not None:
                curves.add(self._columns, snapshot.time, snapshot.values)
        self._waiting.clear()
        self._ticks = 0

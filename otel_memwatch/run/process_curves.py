"""The memory of the largest processes over time, in few points, whatever the number of processes."""

from __future__ import annotations

from otel_memwatch.model import ProcessEvent, ProcessRecord
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = 32
"""Ended processes that are kept, the largest ones: more than are ever drawn."""
_LIVING = 512
"""Living processes that are followed; those of the smallest memory are given up first."""
_POINTS = 512
"""Maximum points of one process. Beyond it, the smaller of each two neighbours is dropped."""

Identity = tuple[int, float]
"""Pid and start: pids are used again."""


class ProcessLife(NamedTuple):
    """Memory of one process over time."""

    pid: int
    start: float
    """Seconds since the start of the run."""
    end: float | None
    """Seconds since the start of the run; `None`: alive."""
    points: Sequence[tuple[float, int]]
    """Seconds since the start of the run and resident bytes, as they were recorded: every second at most."""
    largest: int
    """The most of these bytes."""


class _Life:
    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []
        self.largest = 0
        self.end: float | None = None


class ProcessLives:
    """Store of the largest lives, filled from the lines of processes.

    Args:
        started: monotonic seconds of the start of the run.

    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._living: dict[Identity, _Life] = {}
        self._ended: dict[Identity, _Life] = {}

    def add(self, record: ProcessRecord) -> None:
        """Add a line of a process; costs about a microsecond."""
        key = record.pid, record.start
        life = self._living.get(key)
        if life is None:
            if key in self._ended or (record.event is ProcessEvent.EXIT and record.rss is None):
                return
            life = self._living[key] = _Life()
        if record.rss is not None:
            life.points.append((record.time - self._started, record.rss))
            life.largest = max(life.largest, record.rss)
            if len(life.points) > _POINTS:
                pairs = (life.points[i : i + 2] for i in range(0, len(life.points), 2))
                life.points = [max(pair, key=lambda point: point[1]) for pair in pairs]
        if record.event is ProcessEvent.EXIT:
            life.end = record.time - self._started
            self._ended[key] = self._living.pop(key)
            if len(self._ended) > 2 * _KEPT:
                self._ended = _largest(self._ended, _KEPT)
        elif len(self._living) > 2 * _LIVING:
            self._living = _largest(self._living, _LIVING)

    def largest(self, number: int) -> list[ProcessLife]:
        """The `number` largest processes, the largest first."""
        found = sorted({**self._ended, **self._living}.items(), key=_rank)[:number]
        return [
            ProcessLife(pid, round(start - self._started, 4), life.end, life.points, life.largest)
            for (pid, start), life in found
        ]


def _rank(item: tuple[Identity, _Life]) -> tuple[int, float, int]:
    (pid, start), life = item
    return -life.largest, start, pid


def _largest(lives: dict[Identity, _Life], number: int) -> dict[Identity, _Life]:
    return dict(sorted(lives.items(), key=_rank)[:number])

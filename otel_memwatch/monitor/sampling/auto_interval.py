"""`--interval auto`: sample less often as a run ages, and often again when something happens.

Every sample compares the run with the sample before. A change shortens the interval to the shortest; without one it grows
by half, up to a thousandth of the run's age. The interval of a run that always changes is limited by a budget, so the disk
space of a day is bounded.
"""

from __future__ import annotations

import math

from otel_memwatch import catalog
from otel_memwatch.config import SHORTEST_AUTO, auto_interval
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Attributes, Column, Value

_GROWTH = 1.5
"""Ratio of an interval to the one before, while nothing happens: twelve samples from 0.1 to 10 s."""
_MOVED = 0.05
"""Share of the largest value so far by which memory or page cache changes noticeably."""
_LEAST = 1 << 20
"""Bytes that are no noticeable change."""
_STALLED = 0.01
"""Share of the time in which tasks waited for memory that is noticeable."""
_SPARE = 1500.0
"""Samples that may be taken at once beyond those of a run in which nothing happens: 150 s at the shortest interval."""
_REFILL = 0.02
"""Such samples per second: 1 728 a day, a fifth of those at the longest interval."""
_PROBE_SECONDS = 1.0
"""Seconds between two probes in a long interval."""

_SIZES = (
    catalog.MEMWATCH_TREE_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_FILE,
)
_COUNTS = (catalog.MEMWATCH_TREE_PROCESS_COUNT, catalog.MEMWATCH_CGROUP_MEMORY_EVENTS)
_WAITING = catalog.MEMWATCH_CGROUP_PRESSURE_TIME
_OF_CGROUP = (catalog.MEMWATCH_CGROUP_MEMORY_USAGE, catalog.MEMWATCH_CGROUP_MEMORY_FILE, _WAITING)
_OF_MEMORY = {"memwatch.pressure.resource": "memory", "memwatch.pressure.stall_type": "some"}


class AutoInterval:
    """Interval between samples that follows the run.

    Args:
        started: start of the run, in monotonic seconds.
        longest: seconds between samples at most.

    Attributes:
        now: the current interval, in seconds.
        steady: it has reached its length of a run in which nothing happens.
        shared_cgroup: the cgroup of the samples has other programs, too, so its size and pressure show no change of the run.
    """

    def __init__(self, started: float, longest: float = math.inf) -> None:
        self.now = SHORTEST_AUTO
        self.steady = False
        self.shared_cgroup = False
        self._started, self._longest = started, longest
        self._spare = _SPARE
        self._accounted_at = started
        self._last: dict[tuple[str, Attributes], tuple[float, Value]] = {}
        """Time and value of each column that is compared, at the last sample that had it."""
        self._largest: dict[tuple[str, Attributes], float] = {}
        self._noticed = False
        self._places: Mapping[tuple[str, Attributes], int] = {}

    @property
    def probe_after(self) -> float:
        """Return the seconds until a probe between samples is worth its cost; infinite: none is."""
        return math.inf if self.now < 2 * _PROBE_SECONDS else _PROBE_SECONDS

    def declare(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples."""
        others = _OF_CGROUP if self.shared_cgroup else ()
        self._places = {
            column[:2]: place
            for place, column in enumerate(columns)
            if column.metric not in others
            and (
                column.metric in (*_SIZES, *_COUNTS)
                or (column.metric == _WAITING and dict(column.attributes) == _OF_MEMORY)
            )
        }

    def notice(self) -> None:
        """Note an event that no column shows, such as the start of an operation."""
        self._noticed = True

    def after(self, time: float, values: Sequence[Value]) -> float:
        """Return the seconds from a sample at `time` (monotonic seconds) to the next."""
        happened, self._noticed = self._noticed, False
        for series, place in self._places.items():
            value = values[place]
            if value is not None:
                happened = self._changed(series, time, value) or happened
        longest = min(self._longest, auto_interval(time - self._started))
        self._spare = min(_SPARE, self._spare + (time - self._accounted_at) * _REFILL)
        self._accounted_at = time
        interval = SHORTEST_AUTO if happened else self.now * _GROWTH
        self.steady = interval >= longest or self._spare < 1
        if self.steady:
            interval = longest
        else:
            self._spare -= 1
        self.now = interval
        return interval

    def _changed(self, series: tuple[str, Attributes], time: float, value: float) -> bool:
        """Return whether a value has changed noticeably since it was last compared."""
        before = self._last.get(series)
        if before is None:
            self._last[series] = time, value
            self._largest[series] = value
            return False
        since, last = before
        largest = self._largest[series] = max(self._largest[series], value)
        if series[0] in _COUNTS:
            changed = value != last
        elif series[0] == _WAITING:
            changed = value - (last or 0) > _STALLED * (time - since)
        else:
            # Compared with the last noticeable value, so slow growth is noticed too.
            changed = abs(value - (last or 0)) > max(_LEAST, _MOVED * largest)
            if not changed:
                return False
        self._last[series] = time, value
        return changed

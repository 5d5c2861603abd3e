"""The control group of the target: what the OOM killer sees, and why a program is slow.

`files` finds the group's files, `readings` turns each version's files into the same values, `below` says when groups below it
make these late.
"""

from __future__ import annotations

import errno

from otel_memwatch import catalog
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.cgroup.below import GroupsBelow
from otel_memwatch.monitor.sampling.sources.cgroup.files import Groups, find
from otel_memwatch.monitor.sampling.sources.cgroup.outside import Outside
from otel_memwatch.monitor.sampling.sources.cgroup.readings import readings
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVENT = "memwatch.cgroup.memory.event.type"
_LIMIT = "memwatch.cgroup.limit.type"
_OWN = (
    Column(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_FILE),
    Column(catalog.MEMWATCH_CGROUP_PAGING_FAULTS),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_ANON),
)
"""Columns that a group of the run's own has beside the others."""
_SLOW = {
    "working_set": catalog.MEMWATCH_CGROUP_MEMORY_WORKING_SET,
    "anon": catalog.MEMWATCH_CGROUP_MEMORY_ANON,
    "file": catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    "shmem": catalog.MEMWATCH_CGROUP_MEMORY_SHMEM,
    "kernel": catalog.MEMWATCH_CGROUP_MEMORY_KERNEL,
    "swap": catalog.MEMWATCH_CGROUP_MEMORY_SWAP,
}
"""The metrics of the fields of `Slow` that are columns of their own."""
PRESSURE = tuple((resource, kind) for resource in ("cpu", "memory", "io") for kind in ("some", "full"))


class Cgroup:
    """Usage, watermark and OOM kills at every tick (3 reads, 5 us); the rest about once a second (20 to 60 us).

    In a group of the run's own also, at every tick, the file cache, the page faults, the locked pages and the watermark since the tick before, which
    is reset (10 us). It reads the run's own group where there is one, else the group that the target is in when it is opened. Read-only
    mounts do. A value that the kernel or the version does not have is `None`.
    """

    name = "cgroup"

    def __init__(self, context: Context, groups: Groups) -> None:
        self.groups = groups
        self._gone = False
        """The group has been removed."""
        self._readings = readings(groups)
        self._below = GroupsBelow(groups.memory) if groups.own else None
        self._outside = None if groups.own else Outside(context, groups)
        period = context.slow_period(1.0)
        self._pace = context.pace(1.0)
        self._slow_parts = [part for part in _SLOW if not (groups.own and part in ("file", "anon"))]
        events = [name for name in self._readings.events if name != "oom_kill"]
        self._event_names = events
        self.columns: Sequence[Column] = (
            Column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_PEAK),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, ((_EVENT, "oom_kill"),)),
            *(_OWN if groups.own else (Column(catalog.MEMWATCH_CGROUP_OUTSIDE),)),
            *(Column(_SLOW[part], (), period) for part in self._slow_parts),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, ((_LIMIT, "max"),), period),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, ((_LIMIT, "high"),), period),
            Column(catalog.MEMWATCH_CGROUP_CPU_THROTTLED, (), period),
            *(Column(catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, ((_EVENT, event),), period) for event in events),
            *(
                Column(
                    catalog.MEMWATCH_CGROUP_PRESSURE_TIME,
                    (("memwatch.pressure.resource", resource), ("memwatch.pressure.stall_type", kind)),
                    period,
                )
                for resource, kind in PRESSURE
                if self._readings.has_pressure
            ),
        )

    def read(self, now: float) -> Sequence[Value]:
        """Nothing but `None` once the group has been removed: a service manager does so when its last process has ended."""
        if not self._gone:
            try:
                return self._values(now)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                self._gone = True
        return [None] * len(self.columns)

    def _values(self, now: float) -> Sequence[Value]:
        due = self._pace.due(now)
        late = self._below is not None and self._below.lately(now)
        usage, peak, oom_kills = self._readings.fast()
        fast: tuple[Value, ...] = (usage, peak, oom_kills)
        if self.groups.own:
            # The cache first: what leaves it before the watermark is reset does then not count as needed memory.
            stat = self._readings.of_tick()
            if self._below is not None and late:
                stat = stat._replace(file=None, anon=self._below.private_bytes(self.groups.version))
            window, gap = self._readings.window()
            if peak is None:
                peak = self._readings.highest
            fast = (usage, peak, oom_kills, window, gap, *stat)
        if self._outside is not None:
            fast = (*fast, self._outside.count(all_of_them=due))
        if not due:
            return (*fast, *(None,) * (len(self.columns) - len(fast)))
        slow, events = self._readings.slow(), self._readings.all_events()
        if late:
            slow = slow._replace(working_set=None, anon=None, file=None, shmem=None, kernel=None)
        known = slow._asdict()
        values: list[Value] = [
            *fast,
            *(known[part] for part in self._slow_parts),
            *slow[6:],
            *(events.get(name) for name in self._event_names),
        ]
        if self._readings.has_pressure:
            stalls = self._readings.pressure()
            values += [stalls.get(key) for key in PRESSURE]
        return values

    def close(self) -> None:
        """Close the files; reading is over."""
        self._readings.close()
        if self._below is not None:
            self._below.close()


def open_source(context: Context) -> Cgroup:
    """Open the source; raises `Unavailable` where no memory control group of the target can be read."""
    return Cgroup(context, find(context))

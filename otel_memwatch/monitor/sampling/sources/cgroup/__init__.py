"""The target's cgroup: memory as the OOM killer counts it, and reasons for slowness.

* `location` finds the cgroup's files.
* `readings` reads the files of either version as the same values.
* `below` detects cgroups below it, which make its counts late.
* `outside` counts processes in other cgroups.
"""

from __future__ import annotations

import errno
import math

from otel_memwatch import catalog
from otel_memwatch.monitor.sampling.sources import FAST_PERIOD, columns_of
from otel_memwatch.monitor.sampling.sources.cgroup.below import GroupsBelow
from otel_memwatch.monitor.sampling.sources.cgroup.location import Groups, find
from otel_memwatch.monitor.sampling.sources.cgroup.outside import Outside
from otel_memwatch.monitor.sampling.sources.cgroup.readings import CgroupSample, Details, readings
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.monitor.sampling.sources import Context, Row


_EVENT = "memwatch.cgroup.memory.event.type"
_LIMIT = "memwatch.cgroup.limit.type"

_FAST: tuple[Row[CgroupSample], ...] = (
    (catalog.MEMWATCH_CGROUP_MEMORY_USAGE, (), lambda sample: sample.usage),
    (catalog.MEMWATCH_CGROUP_MEMORY_PEAK, (), lambda sample: sample.peak),
    (catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, ((_EVENT, "oom_kill"),), lambda sample: sample.oom_kills),
)
"""Columns that are read at every sample."""
_RESET: tuple[Row[CgroupSample], ...] = (
    (catalog.MEMWATCH_CGROUP_MEMORY_WINDOW, (), lambda sample: sample.window),
    (catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP, (), lambda sample: sample.gap),
)
"""Further columns of a cgroup with a watermark that is reset at every sample."""
_ALONE: tuple[Row[CgroupSample], ...] = (
    (catalog.MEMWATCH_CGROUP_MEMORY_FILE, (), lambda sample: sample.file),
    (catalog.MEMWATCH_CGROUP_PAGING_FAULTS, (), lambda sample: sample.faults),
    (catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE, (), lambda sample: sample.unevictable),
    (catalog.MEMWATCH_CGROUP_MEMORY_ANON, (), lambda sample: sample.anon),
    (catalog.MEMWATCH_CGROUP_PAGING_REFAULTS, (), lambda sample: sample.refaults),
    (catalog.MEMWATCH_CGROUP_MEMORY_UNWRITTEN, (), lambda sample: sample.unwritten),
)
"""Further columns of a cgroup that holds the run and nothing else."""
_SHARED: tuple[Row[CgroupSample], ...] = (
    (catalog.MEMWATCH_CGROUP_OUTSIDE, (), lambda sample: sample.outside),
)
"""Further columns of any other cgroup."""
_SLOW: tuple[Row[Details], ...] = (
    (catalog.MEMWATCH_CGROUP_MEMORY_WORKING_SET, (), lambda details: details.working_set),
    (catalog.MEMWATCH_CGROUP_MEMORY_ANON, (), lambda details: details.anon),
    (catalog.MEMWATCH_CGROUP_MEMORY_FILE, (), lambda details: details.file),
    (catalog.MEMWATCH_CGROUP_MEMORY_SHMEM, (), lambda details: details.shmem),
    (catalog.MEMWATCH_CGROUP_MEMORY_KERNEL, (), lambda details: details.kernel),
    (catalog.MEMWATCH_CGROUP_MEMORY_SWAP, (), lambda details: details.swap),
    (catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, ((_LIMIT, "max"),), lambda details: details.limit),
    (catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, ((_LIMIT, "high"),), lambda details: details.high),
    (catalog.MEMWATCH_CGROUP_CPU_THROTTLED, (), lambda details: details.throttled),
    (catalog.MEMWATCH_CGROUP_CPU_LIMIT, (), lambda details: details.cores),
    (catalog.MEMWATCH_CGROUP_PAGING_REFAULTS, (), lambda details: details.refaults),
)
"""Columns that are read about once a second. The version adds its events, and pressure if the kernel measures it."""


def _event(name: str) -> Row[Details]:
    return (
        catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
        ((_EVENT, name),),
        lambda details: details.events.get(name),
    )


def _pressure(resource: str, kind: str) -> Row[Details]:
    attributes = (("memwatch.pressure.resource", resource), ("memwatch.pressure.stall_type", kind))
    return (
        catalog.MEMWATCH_CGROUP_PRESSURE_TIME,
        attributes,
        lambda details: details.stalls.get((resource, kind)),
    )


class Cgroup:
    """Usage, watermark and OOM kills ten times a second (3 reads, 5 us); the rest about once a second (20 to 60 us).

    A cgroup made for the run is read if there is one, otherwise the target's cgroup at the time of opening. While no process
    changes, any other cgroup is read about once a second. For a cgroup made for the run, every sample also has (10 us):

    - file cache, page faults and locked pages;
    - the watermark since the previous sample, which is then reset.

    If neither the processes nor its usage and its watermark have changed, these two reads are enough. A cgroup that is the
    target has the same columns, except those of the reset: other watchers would notice it.

    Read-only mounts suffice. A value that the kernel or the version lacks is `None`.
    """

    name = "cgroup"

    def __init__(self, context: Context, groups: Groups) -> None:
        self.groups = groups
        self._removed = False
        self._readings = readings(groups)
        alone = groups.own or groups.target
        self._below = GroupsBelow(groups.memory, ours=groups.own) if alone else None
        self._outside = None if alone else Outside(context, groups)
        self._rests = context.rests
        self._auto = context.auto
        self._slow_pace = context.pace(1.0)
        self._fast_pace = context.pace(FAST_PERIOD)
        self.paces = (self._slow_pace, self._fast_pace)
        """Schedules that the run's last sample overrides."""
        fast = (*_FAST, *(_SHARED if not alone else (*_RESET, *_ALONE) if groups.own else _ALONE))
        at_every_sample = {row[:2] for row in fast}
        slow = [
            row
            for row in (*_SLOW, *(_event(name) for name in self._readings.event_names))
            if row[:2] not in at_every_sample
        ]
        if groups.pressure is not None:
            slow += [
                _pressure(resource, kind) for resource in ("cpu", "memory", "io") for kind in ("some", "full")
            ]
        self.columns: Sequence[Column] = (
            *columns_of(fast),
            *columns_of(slow, context.slow_period(1.0)),
        )
        self._fast = [get for _, _, get in fast]
        self._slow = [get for _, _, get in slow]
        self._not_due: list[Value] = [None] * len(slow)
        self.idle: Sequence[Value] = [None] * len(self.columns)
        """Values while nothing is due."""
        self._unchanged: list[Value] | None = None
        """Values of the next sample if neither the tree nor the charged memory changes; `None`: unknown."""

    @property
    def probe_after(self) -> float:
        """Return the seconds until a probe is worth its cost; infinite unless the interval is long."""
        return math.inf if self._auto is None or self._outside is not None else self._auto.probe_after

    def probe(self, now: float) -> bool:  # noqa: ARG002 - the signature is EarlySampleSource's
        """Return whether memory was charged or released since the last sample (2 us), so a sample now narrows the bounds."""
        return not self._removed and self._readings.has_moved()

    def read(self, now: float) -> Sequence[Value]:
        """Return only `None` after the cgroup's removal: a service manager removes it with its last process."""
        if not self._removed:
            try:
                return self._values(now)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                self._removed = True
        return [None] * len(self.columns)

    def _values(self, now: float) -> Sequence[Value]:
        due = self._slow_pace.due(now)
        rests = self._rests() and not due
        if self._outside is not None and (rests or not self._fast_pace.due(now)):
            self._outside.note_ended()
            return self.idle
        if rests and self._unchanged is not None and self._readings.is_unchanged():
            return self._unchanged
        late = self._below is not None and self._below.lately(now)
        if self._outside is None:
            sample = self._read_alone(late=late)
        else:
            sample = CgroupSample(*self._readings.usage(), self._outside.count(all_of_them=due))
        values = [get(sample) for get in self._fast]
        if self._outside is None:
            self._unchanged = None
            if not late:
                # The next sample if nothing changes: a watermark that was reset is the usage then.
                same = sample._replace(window=sample.usage, gap=0) if self.groups.own else sample
                self._unchanged = [*(get(same) for get in self._fast), *self._not_due]
        if not due:
            return values + self._not_due
        details = self._readings.details()
        if late:
            details = details._replace(working_set=None, anon=None, file=None, shmem=None, kernel=None)
        return values + [get(details) for get in self._slow]

    def _read_alone(self, *, late: bool) -> CgroupSample:
        """Read a cgroup that holds the run and nothing else. `late`: cgroups below it delay its counts."""
        usage, peak, oom_kills = self._readings.usage()
        # The cache first: cache dropped between this reading and the reset then does not count as needed memory.
        file, faults, unevictable, anon, refaults, unwritten = self._readings.statistics()
        if self._below is not None and late:
            file, anon = None, self._below.private_bytes(self.groups.version)
        window = gap = None
        if self.groups.own:
            window, gap = self._readings.window()
            if peak is None:
                peak = self._readings.highest
        else:
            peak = (
                self._readings.peak()
            )  # last: a peak between two readings then is of the window that ends here
        return CgroupSample(
            usage, peak, oom_kills, None, window, gap, file, faults, unevictable, anon, refaults, unwritten
        )

    def close(self) -> None:
        """Close the files."""
        self._readings.close()
        for part in (self._below, self._outside):
            if part is not None:
                part.close()


def open_source(context: Context) -> Cgroup:
    """Open the source; raises `Unavailable` if no memory cgroup of the target can be read."""
    return Cgroup(context, find(context))

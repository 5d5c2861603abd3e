"""The target's cgroup: memory as the OOM killer counts it, and reasons for slowness.

* `location` finds the cgroup's files.
* `readings` reads the files of either version as the same values.
* `GroupsBelow` detects cgroups below it: while there are any, some of its counts are late.
* `Outside` counts processes of the tree in other cgroups.
"""

from __future__ import annotations

import errno
import math
import os

from otel_memwatch import catalog
from otel_memwatch.monitor.sampling.sources import FAST_PERIOD, columns_of
from otel_memwatch.monitor.sampling.sources.cgroup.location import Groups, find
from otel_memwatch.monitor.sampling.sources.cgroup.readings import CgroupSample, Details, readings
from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS, read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.control_group import (
    first_threads,
    locate,
    parse_key,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.procfs.process import is_exiting
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.monitor.sampling.repeated import Repetition
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
    (catalog.MEMWATCH_CGROUP_MEMORY_MAPPED, (), lambda sample: sample.mapped),
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
        self.removed = False
        """True if it was removed before a sample, which then has no values."""
        self._readings = readings(groups)
        alone = groups.own or groups.target
        self._below = GroupsBelow(groups.memory, ours=groups.own) if alone else None
        self._outside = None if alone else Outside(context, groups)
        self._context = context
        self._auto = context.auto
        if self._auto is not None:
            self._auto.shared_cgroup = not alone
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
    def may_probe(self) -> bool:
        """Return whether the interval can be long, and the cgroup holds nothing else."""
        return self._auto is not None and self._outside is None

    @property
    def probe_after(self) -> float:
        """Return the seconds until a probe is worth its cost; infinite unless the interval is long."""
        return math.inf if self._auto is None else self._auto.probe_after

    def probe(self, now: float) -> bool:  # noqa: ARG002 - the signature is EarlySampleSource's
        """Return whether memory was charged or released since the last sample (2 us), so a sample now narrows the bounds."""
        return not self.removed and self._readings.has_moved()

    def keep_last(self, contents: Mapping[str, bytes]) -> None:
        """Keep the contents of the target's files after its last process, in case that it is removed before a sample."""
        self._readings.keep_last(contents)
        if contents:
            self.removed = False  # a sample may have noticed the removal before

    def read(self, now: float) -> Sequence[Value]:
        """Return only `None` after the cgroup's removal: a service manager removes it with its last process.

        Its watermark is known if it was read before.
        """
        if not self.removed:
            try:
                return self._values(now)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
            peak = self._readings.kept_peak()
            if peak is not None:
                return [
                    peak if column.metric == catalog.MEMWATCH_CGROUP_MEMORY_PEAK else None
                    for column in self.columns
                ]
            self.removed = True
        return [None] * len(self.columns)

    def repeats(self) -> Repetition | None:
        """Return until when the next samples have the same values, if the tree rests; `None`: they may differ."""
        from otel_memwatch.monitor.sampling.repeated import Repetition

        if self.removed:
            return None
        due = self._slow_pace.next
        until = self._context.at_rest(due)
        details = self._readings.details_unchanged(due, until - due) if until > due else None
        if details is None:
            details, until = (), due
        if self._outside is not None:
            return Repetition(until, self.idle, details)
        files = self._readings.files_unchanged()
        if self._unchanged is None or files is None:
            return None
        return Repetition(until, self._unchanged, (*files, *details))

    def _values(self, now: float) -> Sequence[Value]:
        due = self._slow_pace.due(now)
        rests = self._context.rests() and not due
        if self._outside is not None and (rests or not self._fast_pace.due(now)):
            self._outside.note_ended()
            return self.idle
        if rests and self._unchanged is not None and self._readings.is_unchanged():
            return self._unchanged
        late = self._below is not None and self._below.lately(now)
        if self._outside is None:
            sample = self._read_alone(late=late, settled=due)
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
        try:
            details = self._readings.details()
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return values + self._not_due  # it was removed after the readings above
        if late:
            details = details._replace(working_set=None, anon=None, file=None, shmem=None, kernel=None)
        return values + [get(details) for get in self._slow]

    def _read_alone(self, *, late: bool, settled: bool) -> CgroupSample:
        """Read a cgroup that holds the run and nothing else.

        Args:
            late: cgroups below it delay its counts.
            settled: its counts should have all changes, as far as the kernel allows.
        """
        if settled and self.groups.own:
            self._readings.settle()
        usage, peak, oom_kills = self._readings.usage()
        # The cache first: cache dropped between this reading and the reset then does not count as needed memory.
        file, faults, unevictable, anon, *statistics = self._readings.statistics()
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
            usage, peak, oom_kills, None, window, gap, file, faults, unevictable, anon, *statistics
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


_MOST = 64
"""Number of cgroups to read in one sample."""


class GroupsBelow:
    """Detector of cgroups that a program has made below the run's: a container runtime, a sandbox, another `wrap`.

    The kernel passes the counts of memory.stat from cgroup to cgroup late (`GROUP_LAG_SECONDS`). For more than a
    second, 100 MiB of page cache were missing there, and therefore counted as needed memory. The watermark and the
    usage are never late.

    If the directory cannot be opened, none are detected.

    Args:
        path: directory of the cgroup.
        ours: it was made for the run. The times of other directories are not set, so a cgroup that comes and goes between
            two samples is not detected there.
    """

    def __init__(self, path: str, *, ours: bool) -> None:
        self._path = path
        self._directory = -1
        self._changed: int | None = None
        self._until = float("-inf")
        if ours:
            with suppress(OSError):
                # The kernel maintains the times of a cgroup's directory only after the first call that sets one.
                os.utime(path)
        with suppress(OSError):
            self._directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._changed = os.fstat(self._directory).st_mtime_ns

    def lately(self, now: float) -> bool:
        """Return whether there is a cgroup below, or was one lately (1 us). `now`: monotonic seconds."""
        if self._directory < 0:
            return False
        status = os.fstat(self._directory)
        if status.st_nlink > 2 or status.st_mtime_ns != self._changed:
            self._changed = status.st_mtime_ns
            self._until = now + GROUP_LAG_SECONDS
        return now < self._until

    def private_bytes(self, version: int) -> int:
        """Return bytes of private memory of the cgroup and those below it (20 us each).

        Each cgroup is read separately, so the sum is never late. It is a lower bound, without:

        - cgroups after the first `_MOST`;
        - a cgroup that is being removed;
        - in version 2, memory charged directly to a cgroup with others below it.
        """
        total, waiting = 0, [self._path]
        for _ in range(_MOST):
            if not waiting:
                break
            group = waiting.pop()
            with suppress(OSError):
                below = [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
                waiting += below
                # Version 1 counts the cgroup alone in fields without "total_"; version 2 includes the cgroups below.
                if version == 1 or not below:
                    with open(f"{group}/memory.stat", "rb") as file:
                        total += parse_key(file.read(), b"rss" if version == 1 else b"anon") or 0
        return total

    def close(self) -> None:
        """Close the directory."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


_FEW = 8
"""Number of processes up to which every sample checks all."""
_LISTED = 20
"""Number of processes to check from which on the cgroup's list is read first."""
_LONGEST_LIST = 10
"""Longest list for each of them: a check costs as much as ten numbers."""
_READ = 4096
"""Bytes per read; longer memberships are read as a whole file."""


class Outside:
    """Count of the tree's processes outside the cgroup (5 us for each check).

    A new process is checked at once, all processes about once a second, and up to `_FEW` at every sample. In version 2,
    a process that we waited for is checked once more at its end.
    """

    def __init__(self, context: Context, groups: Groups) -> None:
        self._context = context
        self._group = groups.memory
        self._version = groups.version
        self._mounts = parse_mounts(read_once(f"{context.proc}/self/mountinfo"))
        self._known: frozenset[int] = frozenset()
        self._inside: bytes | None = None
        """Memberships of a process inside. Equal ones are not parsed again."""
        self._list_pays = True
        """The cgroup's list is short enough."""
        self._files: dict[int | str, int] = {}
        """Open descriptors of processes that every sample checks."""
        # Our child started in our cgroup. If it is in another one, it has moved, and may have moved unseen processes too.
        moved = context.adopt and not self._is_inside("self")
        self._outside: set[int] = {context.root} if moved else set()

    def count(self, *, all_of_them: bool) -> int:
        """Return the number of processes seen outside so far."""
        pids = frozenset(self._context.pids())
        unsure = pids if all_of_them or len(pids) <= _FEW else pids - self._known
        if self._list_pays and len(unsure) > _LISTED:
            inside = first_threads(self._group, self._version)
            self._list_pays = len(inside) <= _LONGEST_LIST * len(unsure)
            unsure -= inside
        for pid in unsure:
            if pid not in self._outside and not self._is_inside(pid):
                self._outside.add(pid)
        if pids != self._known:
            self._close_files(set(self._files) - pids if len(pids) <= _FEW else set(self._files))
            self._known = pids
        self.note_ended()
        return len(self._outside)

    def note_ended(self) -> None:
        """Check the processes that ended by this sample."""
        if self._version == 2 and self._context.tree is not None and (ended := self._context.tree.ended_in()):
            self._outside.update(pid for pid, groups in ended.items() if not self._holds(groups))

    def _is_inside(self, pid: int | str) -> bool:
        try:
            groups = self._memberships(pid)
            if groups == self._inside:
                return True
            if self._holds(groups):
                self._inside = groups
                return True
            # Version 1 lists an exiting process in the root group.
            return self._version == 1 and is_exiting(read_once(f"{self._context.proc}/{pid}/stat"))
        except OSError:
            return True

    def _memberships(self, pid: int | str) -> bytes:
        """Return /proc/PID/cgroup. Its descriptor stays open for one of few known processes.

        A descriptor belongs to its process for ever: after its end, the file of this pid is opened again.
        """
        descriptor = self._files.get(pid)
        if descriptor is not None:
            try:
                groups = os.pread(descriptor, _READ, 0)
            except OSError:
                self._close_files({pid})
            else:
                if len(groups) < _READ:
                    return groups
        path = f"{self._context.proc}/{pid}/cgroup"
        if descriptor is None and pid in self._known and len(self._known) <= _FEW:
            self._files[pid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return read_once(path)

    def _close_files(self, pids: Collection[int | str]) -> None:
        for pid in pids:
            os.close(self._files.pop(pid))

    def close(self) -> None:
        """Close the files."""
        self._close_files(set(self._files))

    def _holds(self, groups: bytes) -> bool:
        """Return whether a process with these memberships is in our cgroup or below it."""
        location = locate(parse_memberships(groups), self._mounts, "memory")
        path = "" if location is None else str(location.path)
        return path == self._group or path.startswith(f"{self._group}/")

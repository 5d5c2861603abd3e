"""The stall ledger of a run: seconds without progress for lack of memory, disk or CPU, sample by sample (`truth.stalls`)."""

from __future__ import annotations

from math import inf

from otel_memwatch import catalog
from otel_memwatch.record.schema import series_picker
from otel_memwatch.run.stall_curve import (
    CONTENDED,
    DISK,
    READ,
    REREAD,
    THROTTLED,
    WRITES,
    StallCurve,
)
from otel_memwatch.run.stalls import Stalls
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.refaults import (
    ahead_again,
    are_enough,
    are_foreign,
    are_proven,
    are_some,
    asked_again,
    faulted_again,
    not_own,
    shortage,
    surplus,
)
from otel_memwatch.truth.stalls import (
    AT_LIMIT,
    LEAST_CLOGGED,
    MACHINE_FULL,
    WORTH_NAMING,
    StallWindow,
    blocked,
    contended_share,
    is_clogged,
    longest_stall,
    longest_wait,
    throttled_share,
    waited,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.conditions import RunConditions

_SERIES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "refaults": (catalog.MEMWATCH_CGROUP_PAGING_REFAULTS, ()),
    "user": (catalog.MEMWATCH_TREE_CPU_TIME, (("cpu.mode", "user"),)),
    "system": (catalog.MEMWATCH_TREE_CPU_TIME, (("cpu.mode", "system"),)),
    "major_faults": (catalog.MEMWATCH_TREE_PAGING_FAULTS, (("system.paging.fault.type", "major"),)),
    "minor_faults": (catalog.MEMWATCH_TREE_PAGING_FAULTS, (("system.paging.fault.type", "minor"),)),
    "high": (catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, (("memwatch.cgroup.limit.type", "high"),)),
    "hits": (catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, (("memwatch.cgroup.memory.event.type", "max"),)),
    "threads": (catalog.MEMWATCH_TREE_THREAD_COUNT, ()),
    "throttled": (catalog.MEMWATCH_CGROUP_CPU_THROTTLED, ()),
    "cores": (catalog.MEMWATCH_CGROUP_CPU_LIMIT, ()),
    "delay": (catalog.MEMWATCH_TREE_CPU_DELAY, ()),
    "busy": (catalog.MEMWATCH_SYSTEM_CPU_BUSY, ()),
}
"""Series beyond the fields of a `Sample`, with their attributes."""
PRESSURES = (catalog.MEMWATCH_CGROUP_PRESSURE_TIME, catalog.MEMWATCH_SYSTEM_PRESSURE_TIME)
"""Metrics of pressure: the run's, and the machine's (`longest_stall`)."""
_COVERED = 0.5
"""Least share of a run between two readings of pressure that limit its waiting. It is read once a second, and at the end."""

_PRESSURE_AGE = 1.0
"""Seconds that a reading of pressure may be old."""
METRICS = frozenset(metric for metric, _ in _SERIES.values()) | {*PRESSURES}
"""Metrics that the ledger reads beyond those of `Sample`."""


class _Reading(NamedTuple):
    """Counters at one moment."""

    time: float
    refaults: float
    user: float
    read: float
    major_faults: float
    minor_faults: float


class StallMark(NamedTuple):
    """Counters of the ledger at one moment: seconds and bytes since the start of the run."""

    time: float
    """Monotonic seconds of the reading, without the seconds of waiting for processors that other programs used: a clock that
    stops meanwhile. This waiting and, on cgroups v2, refaults are read once a second."""
    outside: float
    """Seconds on that clock in which the run executed no code in user mode."""
    reread_wait: float
    """Waiting for pages that were read again."""
    read_wait: float
    """Waiting for all pages that were read."""
    memory: float
    """Pressure of memory, up to a second old; infinite if unknown."""
    io: float
    system: float
    chars: int
    asked: int
    """Passed to read calls beyond the first readings: a call that copies a whole file is counted at its end."""
    surplus: int
    late_read: int
    """Since memory was full; so the following ones."""
    late_refaulted: int
    faulted: int
    major: int


class StallLedger:
    """Adds up the stalls of a run; a sample costs some 2 us.

    Args:
        columns: of the samples.
        conditions: of the run.

    """

    def __init__(self, columns: Sequence[Column], conditions: RunConditions) -> None:
        self._conditions = conditions
        self._before: _Reading | None = None
        if conditions.own_cgroup and not conditions.joined:
            self._before = _Reading(conditions.started, 0, 0, 0, 0, 0)
        self._unjudged: int | None = None if self._before is None else 0
        """Bytes read before the first reading of refaults, and in the window after it; `None`: no reading yet. In a dedicated
        cgroup, all counters begin at 0."""
        self._unseen = 0
        """Bytes of them before the first reading."""
        self._windows = 0
        self._limit: float | None = None
        self._hits: float | None = None
        self._reached = False
        """Memory has been full: from then on, the run may have lost pages."""
        self._early_refaulted = self._early_read = self._early_chars = 0
        """Bytes until then."""
        self._late_read = self._reread = self._faulted = self._major = 0
        """Bytes from then on; major faults can have read those of `_major`, at most."""
        self._first_read = 0
        """Bytes read until refaults were more than few of them."""
        self._read = self._refaulted = self._chars = self._written = 0
        self._held = self._virtual = 0
        """Largest page cache charged, and largest address space."""
        self._unwritten: int | None = None
        """Most page cache that waited to be written."""
        self._clogged = False
        """Since the last reading of pressure, much page cache waited to be written while memory was full."""
        self._burst: StallWindow | None = None
        """Last window with reads, and those after it."""
        self._counted = [0.0, 0.0]
        """Seconds of it in the curve so far, as `REREAD` and as `READ`."""
        self._curve = StallCurve()
        self._threads = 1.0
        self._cores: float | None = None
        self._throttled: tuple[float, float, float] | None = None
        """First and last reading, and the time of the last one."""
        self._contended: tuple[float, float, float, float] | None = None
        """Last readings: time, waiting, CPU time of the machine and of the tree."""
        self.contention = 0.0
        """Seconds of waiting for processors that other programs used."""
        self._others = self._others_seconds = 0.0
        """CPU seconds of other programs, and the time in which they were counted."""
        self._outside = 0.0
        """Seconds without code in user mode, since memory was full."""
        self._pressure: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
        """Time and stall of the first and of the last reading, by resource."""
        self._system = self._early_system = 0.0
        """CPU seconds of the kernel for the tree: so far, and until memory was full."""
        self._delay = 0.0
        """Seconds of waiting for a processor."""
        self.join(columns)

    def join(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples."""
        keys, self._pick = series_picker(columns, METRICS)
        index = {key: place for place, key in enumerate(keys)}
        self._places = {name: place for name, key in _SERIES.items() if (place := index.get(key)) is not None}
        kind = "memwatch.pressure.stall_type"
        metrics = {metric for metric, _ in keys}
        metric = next((one for one in PRESSURES if one in metrics), None)
        self._of_group = metric == PRESSURES[0]
        self._stalls = {
            dict(attributes)["memwatch.pressure.resource"]: place
            for place, (name, attributes) in enumerate(keys)
            if name == metric and (kind, "some") in attributes
        }

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        values = self._pick(sample.row)
        self._add_limits(sample, values)
        self._held = max(self._held, int(sample.file or 0))
        self._virtual = max(self._virtual, int(sample.virtual or 0))
        if sample.unwritten is not None:
            self._unwritten = max(self._unwritten or 0, int(sample.unwritten))
            clogged = is_clogged(int(sample.unwritten), int(sample.file or 0))
            self._clogged = self._clogged or (clogged and self._is_full(sample))
        self._threads = max(self._threads, self._value(values, "threads") or 0)
        self._chars = int(sample.read_chars or self._chars)
        self._written = int(sample.write_chars or self._written)
        self._system = self._value(values, "system") or self._system
        for resource, place in self._stalls.items():
            stall = values[place]
            if stall is not None:
                now = sample.time, stall
                first, before_it = self._pressure.get(resource, (now, now))
                self._pressure[resource] = first, now
                if (resource == "io" and self._of_group) or (resource == "memory" and self._clogged):
                    kind = WRITES if resource == "memory" else DISK
                    self._wait(kind, before_it[0], now[0], stall - before_it[1])
                    self._clogged = self._clogged and resource != "memory"
        self._add_contention(sample.time, values)
        user, read, refaults = self._value(values, "user"), sample.read_bytes, self._value(values, "refaults")
        if user is None or read is None or (refaults is None and "refaults" in self._places):
            return  # refaults of a cgroup that others share are read once a second
        major, minor = (self._value(values, name) or 0 for name in ("major_faults", "minor_faults"))
        reading = _Reading(sample.time, refaults or 0, user, read, major, minor)
        before, self._before = self._before, reading
        if self._unjudged is None:
            self._unjudged = self._unseen = int(read)
        if before is not None:
            self._add_window(before, reading, full=self._is_full(sample))

    def _value(self, values: Sequence[Value], name: str) -> Value:
        place = self._places.get(name)
        return None if place is None else values[place]

    def _wait(self, kind: int, start: float, end: float, seconds: float) -> None:
        """Add seconds of waiting between two monotonic times."""
        self._curve.add(kind, start - self._conditions.started, end - self._conditions.started, seconds)

    def _add_limits(self, sample: Sample, values: Sequence[Value]) -> None:
        """Add the readings of about once a second."""
        time = sample.time
        limits = [limit for limit in (sample.limit, self._value(values, "high")) if limit is not None]
        self._limit = min(limits) if limits else self._limit
        self._cores = self._value(values, "cores") or self._cores
        hits = self._value(values, "hits")
        if hits is not None:
            self._reached = self._reached or (self._hits is not None and hits > self._hits)
            self._hits = hits
        throttled = self._value(values, "throttled")
        if throttled is not None:
            first, before_it, since = self._throttled or (throttled, throttled, time)
            self._wait(THROTTLED, since, time, throttled - before_it)
            self._throttled = first, throttled, time

    def _add_contention(self, time: float, values: Sequence[Value]) -> None:
        """Add the waiting for processors since the last reading, about a second ago."""
        delay, busy, user = (self._value(values, name) for name in ("delay", "busy", "user"))
        self._delay = delay or self._delay
        if delay is None or busy is None or user is None:
            return
        before, self._contended = self._contended, (time, delay, busy, user + self._system)
        if before is not None:
            seconds, waited_, machine, used = (
                now - then for now, then in zip(self._contended, before, strict=True)
            )
            allowed = min(self._conditions.usable_cpus, self._cores or self._conditions.usable_cpus)
            lost = seconds * contended_share(waited_, machine - used, used, seconds, allowed)
            self.contention += lost
            self._others += max(0.0, machine - used)
            self._others_seconds += seconds
            self._wait(CONTENDED, before[0], time, lost)

    def _is_full(self, sample: Sample) -> bool:
        """Return whether the kernel may have reclaimed: the cgroup is at its limit, or the machine has no free memory."""
        machine = self._conditions.machine_bytes
        if machine is not None and sample.system is not None and sample.system >= MACHINE_FULL * machine:
            return True
        return self._limit is not None and sample.usage is not None and sample.usage >= AT_LIMIT * self._limit

    def _add_window(self, before: _Reading, now: _Reading, *, full: bool) -> None:
        """Add the window between two readings; `full`: memory was full at its end."""
        refaulted = max(0, int(now.refaults - before.refaults)) * self._conditions.page_bytes
        read = max(0, int(now.read - before.read))
        self._windows += 1
        self._read += read
        if self._unjudged and self._windows == 1:
            self._unjudged += read
        self._refaulted += refaulted
        if not are_foreign(self._refaulted, self._read):
            self._first_read = self._read
        self._reached = self._reached or full
        if not self._reached:
            self._early_refaulted += refaulted
            self._early_read += read
            self._early_chars, self._early_system = self._chars, self._system
            return
        seconds, user = now.time - before.time, now.user - before.user
        faults = int(now.major_faults - before.major_faults)
        self._late_read += read
        self._outside += max(0.0, seconds - user)
        self._reread += refaulted
        if self._windows > 1:  # the first has the start of the program
            again = refaulted if "refaults" in self._places else read
            self._major += faulted_again(read, faults, 0)
            self._faulted += faulted_again(again, faults, int(now.minor_faults - before.minor_faults))
        # A window without reads waits for those before: the kernel counts bytes as it asks for them.
        window = StallWindow(seconds, user, read, refaulted, faults)
        if self._burst is None or read:
            self._burst, self._counted = window, [0.0, 0.0]
        else:
            added = (one + more for one, more in zip(self._burst, window, strict=True))
            self._burst = StallWindow(*added)  # type: ignore[arg-type]
        burst = self._burst
        waits = waited(burst), waited(burst._replace(reread_bytes=burst.read_bytes))
        for index, (kind, waiting) in enumerate(zip((REREAD, READ), waits, strict=True)):
            self._wait(kind, before.time, now.time, waiting - self._counted[index])
            self._counted[index] = max(waiting, self._counted[index])

    def stalls(self, seconds: float) -> Stalls:
        """Return the stalls of the run so far, which took so many seconds."""
        found, kind = self._of_memory(seconds) if seconds > 0 and self._windows else (Stalls(), REREAD)
        if not found.memory and (more := self._of_ahead(seconds)) is not None:
            found, kind = more, READ
        unjudged = self._unjudged or 0
        if (
            not found.memory
            and self._limit
            and are_proven(unjudged)
            and are_enough(unjudged, self._unseen + self._read, 0)
        ):
            found = found._replace(
                memory=None
            )  # a shortage in another program's cgroup, perhaps before its first reading
        if seconds > 0 and (writes := self._of_writes(seconds)) > (found.memory or 0.0):
            if self._of_group:
                found, kind = Stalls(memory=writes), WRITES
            elif (found.memory or 0.0) < WORTH_NAMING <= writes:
                found = Stalls(writes=writes)
        cpu = contention = disk = None
        if self._throttled is not None:
            first, last, _ = self._throttled
            cpu = _share(
                throttled_share(last - first, seconds, min(self._conditions.usable_cpus, self._threads))
            )
        if self._contended is not None and seconds > 0:
            contention = 0.0 if cpu else _share(self.contention / seconds)
        if self._of_group and self._conditions.own_cgroup and "io" in self._pressure:
            (start, waited_before), (end, waited_now) = self._pressure["io"]
            if end > start:
                disk = _share((waited_now - waited_before) / (end - start) - (found.memory or 0.0))
        periods = self._curve.periods(
            seconds,
            memory=kind,
            memory_seconds=(found.memory or 0.0) * seconds,
            cpu_seconds=(cpu or 0.0) * seconds,
            contended_seconds=(contention or 0.0) * seconds,
        )
        return found._replace(
            unwritten_bytes=self._unwritten,
            disk=disk,
            cpu=cpu,
            contention=contention,
            cores_allowed=self._cores,
            periods=tuple(periods),
        )

    def _of_memory(self, seconds: float) -> tuple[Stalls, int]:
        """Return the stalls for lack of memory, and the kind of waiting that they consist of."""
        if not self._reached:
            return Stalls(memory=0.0), REREAD
        late = self._late_read
        if not late:
            return Stalls(memory=0.0, reread_bytes=0), REREAD
        late_chars, refaults = self._chars - self._early_chars, "refaults" in self._places
        again = self._asked_again(self._reread if refaults else late, max(0, self._read - self._refaulted))
        more = surplus(self._read, self._chars, self._virtual)
        certain = self._asked_again(more, self._read)
        if are_some(self._reread, late):
            certain = max(certain, min(more, self._major))
        if refaults and not are_enough(max(again, certain), late, late_chars):
            return Stalls(memory=0.0, reread_bytes=again), REREAD
        if refaults and self._is_own() and again >= certain:
            wait = self._curve.total(REREAD) * again / min(self._reread, late)
            sizes = shortage(self._read, again, self._refaulted, self._held)
            return Stalls(self._share_of(wait, again, seconds), None, None, *sizes), REREAD
        if not certain or not are_enough(certain, late, late_chars):
            return Stalls(), READ
        wait = self._curve.total(READ) * min(1.0, certain / late)
        return Stalls(self._share_of(wait, certain, seconds), reread_bytes=certain), READ

    def _of_ahead(self, seconds: float) -> Stalls | None:
        """Return the stalls for pages that the kernel read ahead and dropped; `None`: none are known."""
        late = self._late_read
        more = surplus(self._read, self._chars, self._virtual)
        again = ahead_again(more, self._reread, late, self._chars - self._early_chars)
        if "system" not in self._places or not self._others_seconds or not are_enough(again, late, 0):
            return None
        wait = blocked(
            self._outside, self._system - self._early_system, self._delay, self._others,
            seconds=seconds, interval=self._conditions.interval,
        )  # fmt: skip
        share = self._share_of(min(wait, self._curve.total(READ)) * again / late, again, seconds)
        return Stalls(share, reread_bytes=again) if share else None

    def _of_writes(self, seconds: float) -> float:
        """Return the share of the time in which the kernel sought memory among pages that waited to be written."""
        sought = self._stall(self._curve.total(WRITES), seconds - self.contention)
        return _share(sought / seconds) if sought >= LEAST_CLOGGED else 0.0

    def _is_own(self) -> bool:
        """Return whether the counter of refaults shows this run only."""
        return are_proven(self._first_read) and not (
            are_foreign(self._early_refaulted, self._early_read)
            or are_foreign(*not_own(self._refaulted, self._read, self._held, self._written))
        )

    def mark(self) -> StallMark:
        """Return the counters at the last reading of all. Costs some 20 us."""
        time = 0.0 if self._before is None else self._before.time
        return StallMark(
            (time if self._contended is None else self._contended[0]) - self.contention,
            self._outside - self.contention,
            self._curve.total(REREAD),
            self._curve.total(READ),
            self._stalled("memory"),
            self._stalled("io"),
            self._system,
            self._chars,
            max(0, self._chars - max(0, self._read - self._refaulted)),
            surplus(self._read, self._chars, self._virtual),
            self._late_read,
            self._reread,
            self._faulted,
            self._major,
        )

    def _stall(self, pressure: float, seconds: float) -> float:
        """Return the seconds that the run stalled at most, from the pressure of its cgroup or of the machine."""
        if self._of_group:
            return min(pressure, seconds)
        others = self._others / self._others_seconds if self._others_seconds else None
        return longest_stall(pressure, seconds, others, self._conditions.processors)

    def _stalled(self, resource: str) -> float:
        """Return the seconds of pressure at its last reading; infinite if unknown."""
        return self._pressure[resource][1][1] if resource in self._pressure else inf

    def waited(self, first: StallMark, last: StallMark) -> float:
        """Return the seconds between two marks in which the run waited for memory; 0 if that is not certain.

        The rules are those for a whole run. A run that has read much before hides a shortage from them for long.
        """
        reread = last.late_refaulted - first.late_refaulted
        read = last.late_read - first.late_read
        chars = last.chars - first.chars
        counted, more = "refaults" in self._places, last.surplus - first.surplus
        certain = min(more, read, last.major - first.major) if are_some(reread, read) else 0
        if counted and not are_enough(max(reread, certain), read, chars):
            return 0.0
        if counted and self._is_own() and reread >= certain:
            found, wait = min(reread, read), last.reread_wait - first.reread_wait
            asked, certain = last.asked - first.asked, 0
        else:
            reread, found, wait = more, read, last.read_wait - first.read_wait
            asked = 0
        again = max(certain, asked_again(min(reread, read), 0, asked, last.faulted - first.faulted))
        if not again or not are_enough(again, read, chars):
            return 0.0
        # Part of that may have been waiting for a processor.
        wait = min(wait * min(1.0, again / found), max(0.0, last.outside - first.outside) * again / read)
        if inf in (first.memory, first.io):
            return wait
        seconds = last.time - first.time
        most = longest_wait(
            self._stall(last.memory - first.memory, seconds) + _PRESSURE_AGE,
            self._stall(last.io - first.io, seconds) + _PRESSURE_AGE,
            last.system - first.system,
            again=again,
            read=read,
            read_chars=chars,
        )
        return min(wait, most)

    def _asked_again(self, reread: int, first: int) -> int:
        """Return bytes read again that the program asked for, at most; `first`: bytes read that were no refaults."""
        return asked_again(min(reread, self._late_read), first, self._chars, self._faulted)

    def _share_of(self, wait: float, again: int, seconds: float) -> float:
        """Return the share of the time that the tree waited to read these bytes again, within the bound of pressure.

        While it waited for a processor, it did not wait for memory.
        """
        wait = min(wait, max(0.0, seconds - self.contention))
        stalled: dict[str, float] = {}
        for resource in ("memory", "io"):
            (start, first), (end, last) = self._pressure.get(resource, ((0.0, 0.0), (0.0, 0.0)))
            if end - start < _COVERED * seconds:
                return _share(wait / seconds)
            stalled[resource] = self._stall(max(0.0, last - first), end - start) / (end - start) * seconds
        most = longest_wait(
            **stalled, system=self._system, again=again, read=self._read, read_chars=self._chars
        )
        return _share(min(wait, most) / seconds)


def _share(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)

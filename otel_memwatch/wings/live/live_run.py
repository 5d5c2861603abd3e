"""Figures of a run in progress, from its record alone: memory now, peak so far, processes, time until the limit.

* Each update reads only new lines. A run of a day costs no more per update than a run of a minute, in time and in memory.
* The first update of a long record does not read all of it. Current figures come from its end. Each update reads more of
  the earlier part, within its time.
* Nothing is written and no process is contacted. Every user who can read the record can follow it from any terminal.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.config import AUTO, auto_interval
from otel_memwatch.errors import RunError
from otel_memwatch.model import Evidence, ProcessEvent
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.format import PROCESSES_FILE, RUN_FILE, SAMPLES_FILE
from otel_memwatch.record.open import read_info
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.record.operation_lines import row_of
from otel_memwatch.record.reader import process_record
from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.record.sample_lines import is_sample, parse_columns
from otel_memwatch.record.schema import whole_of
from otel_memwatch.run.aggregate import METRICS, RunAggregator
from otel_memwatch.run.attribution import Candidates
from otel_memwatch.run.ending import ending_of, state_of
from otel_memwatch.run.growth import HANDLES_KIND, Repeats
from otel_memwatch.run.results import Peaks
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.exact import at_least
from otel_memwatch.truth.growth import LEAK
from otel_memwatch.truth.partial_records import stopped
from otel_memwatch.truth.process import raised_by_sample
from otel_memwatch.wings.live.growing_record import GrowingFile, LargestOverTime, NewestSample

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Column, Ending, ProcessRecord, RecordedOperation
    from otel_memwatch.run.growth import GrowthFinding

_CLOSED = 200
"""Ended operations to remember: one of them may hold the peak."""

_SHOWN = frozenset(
    {catalog.HW_GPU_MEMORY_LIMIT, catalog.HW_GPU_UTILIZATION, catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE}
)


class LiveProcess(NamedTuple):
    """Running process according to its last line."""

    pid: int
    start: float
    command: str | None
    argv: tuple[str, ...] | None
    rss: int | None
    """Resident bytes, at most some seconds old."""
    peak: int | None
    time: float = 0.0
    """Monotonic seconds of its last line."""


class LiveDevice(NamedTuple):
    """GPU at the last sample."""

    id: str
    used: int | None
    limit: int | None
    ours: int | None
    """Bytes held by this run's processes."""
    busy: float | None
    """Utilization, 0 to 1."""


class LiveFigures(NamedTuple):
    """Figures of one update in bytes and seconds; `None`: unknown."""

    command: tuple[str, ...]
    state: str
    """State like `RecordedRun.state`."""
    ending: Ending
    seconds: float
    """Time from the start of the run to its last sample."""
    now: int | None
    """Current memory of all processes in bytes."""
    needed: bool
    """True if `now` counts each page once and no cache; else it is the sum of resident sizes."""
    peaks: Peaks
    """Peaks so far."""
    limit: int | None
    limit_of: str
    """"control group" or "machine"."""
    pace: float | None
    """Growth of `now` in bytes per second; `None`: no steady growth."""
    curve: Sequence[tuple[float, int]]
    """Points of the curve: seconds since the start of the run, and the largest sample up to the next point."""
    processes: Sequence[LiveProcess]
    """Running processes, the largest first."""
    operations: Sequence[RecordedOperation]
    """Open operations, by start."""
    devices: Sequence[LiveDevice]
    findings: Sequence[GrowthFinding]
    """Leaks so far."""
    started: float
    """Start of the run in monotonic seconds of its machine."""
    read: float
    """Part of the samples read so far, 0 to 1. Peak and curve cover only this part."""

    @property
    def to_limit(self) -> float | None:
        """Return the seconds until the limit at the current growth; `None` without steady growth or a limit."""
        if self.pace is None or self.limit is None or self.now is None or self.pace <= 0:
            return None
        return max(0.0, (self.limit - self.now) / self.pace)


class LiveRun:
    """Run directory that is read repeatedly. Raises `RunError` if it holds no run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._info: Mapping[str, Any] = read_info(self.path / RUN_FILE)
        self._fields = RunInfo.of(self._info)
        self._samples = GrowingFile(self.path / SAMPLES_FILE, segmented=True)
        self._process_lines = GrowingFile(self.path / PROCESSES_FILE)
        self._follower = OperationFollower(self.path)
        self._closed: deque[RecordedOperation] = deque(maxlen=_CLOSED)
        self._repeats = Repeats()
        self._time: float | None = None
        self._begin(())

    def _begin(self, columns: tuple[Column, ...]) -> None:
        """Start again with these columns."""
        self._columns = columns
        self._newest = NewestSample(columns, range(len(columns)))
        self._aggregator = RunAggregator(columns, self._info)
        self._curve = LargestOverTime()
        self._waiting: deque[ProcessRecord] = deque()
        """Lines of processes after the last sample of the aggregator."""
        self._coming: deque[ProcessRecord] = deque()
        """Lines of processes after the current sample."""
        self._living: dict[tuple[int, float], LiveProcess] = {}
        self._samples.rewind()
        self._process_lines.rewind()

    def look(self, seconds: float = math.inf) -> LiveFigures:
        """Return the current figures. Reads lines written since the last update, for at most about `seconds`."""
        until = time.monotonic() + seconds
        # While run.json is being replaced, use the previous content.
        with contextlib.suppress(RunError):
            self._info = read_info(self.path / RUN_FILE)
        self._fields = RunInfo.of(self._info)
        state = state_of(self._fields, self.path)
        while not self._read(until):
            pass
        newest = self._at_the_end() if self._samples.behind or self._process_lines.behind else self._newest
        while self._coming and newest.time is not None and self._coming[0].time <= newest.time:
            self._live(self._coming.popleft())
        followed = self._follower.poll()
        self._close(followed.closed)
        while followed.behind and time.monotonic() < until:
            followed = self._follower.poll()
            self._close(followed.closed)
        open_operations = self._follower.open_operations()
        self._aggregator.boundaries(self._follower.lines())
        started = self._aggregator.conditions.started
        last = None if newest.time is None else newest.time - started
        now, needed = self._now(newest)
        group_limits = whole_of(newest.latest.limit), self._fields.limits.get("cgroup_bytes")
        limit = min(filter(None, group_limits), default=None)
        owner = "machine" if limit is None else "control group"
        if limit is None:
            limit = self._fields.limits.get("host_bytes") or self._fields.host.memory_bytes
        curve = self._curve.points()
        if newest is not self._newest:  # add the points beyond the part of the record that is read
            after = curve[-1][0] if curve else -1.0
            curve += [point for point in newest.recent if point[0] > after]
        self._time = newest.time
        ending = ending_of(self._fields, state, last, [operation.name for operation in open_operations])
        growth = self._aggregator.findings(self._repeats, job=ending.exit_code == 0)
        return LiveFigures(
            command=self._fields.command,
            state=state,
            ending=ending,
            seconds=last or 0.0,
            now=now,
            needed=needed,
            peaks=self._peaks([*self._closed, *open_operations], newest),
            limit=limit,
            limit_of=owner,
            pace=newest.pace,
            curve=curve,
            processes=sorted(self._living.values(), key=lambda p: (-(p.rss or 0), p.pid)),
            operations=[self._raised(operation) for operation in open_operations],
            devices=self._devices(newest),
            findings=[one for one in growth if one.kind in (LEAK, HANDLES_KIND) or one.allocator],
            started=started,
            read=self._samples.share if newest is self._newest else min(0.999, self._samples.share),
        )

    def _read(self, until: float) -> bool:
        """Read new lines. Return false if a source that opened late added columns: then read everything again."""
        for line in self._process_lines.values(until):
            if isinstance(line, dict) and (record := process_record(line)) is not None:
                self._waiting.append(record)
                self._coming.append(record)
        # The figures of a sample depend on the lines of processes before it.
        for line in self._samples.values(until) if not self._process_lines.behind else ():
            if isinstance(line, dict):
                declared = parse_columns(line)
                if declared is None:
                    continue
                fresh = [c for c in declared if c not in self._columns]
                if fresh:
                    self._begin((*self._columns, *fresh))
                    return False
                self._newest.declare(declared)
            elif is_sample(line):
                time = float(line[0])
                self._process_until(time)
                self._aggregator.add(self._newest.add(line))
                size = self._sized(self._newest, time)
                if size is not None:
                    self._curve.add(*size)
        if self._newest.time is not None:
            self._process_until(self._newest.time)
        return True

    def _close(self, operations: Sequence[RecordedOperation]) -> None:
        """Add operations that have ended."""
        self._closed.extend(operations)
        for operation in operations:
            self._repeats.add(row_of(operation))

    def _process_until(self, time: float) -> None:
        """Pass the lines of processes up to a moment to the aggregator."""
        while self._waiting and self._waiting[0].time <= time:
            self._aggregator.process(self._waiting.popleft())

    def _sized(self, newest: NewestSample, time: float) -> tuple[float, int] | None:
        """Return seconds since the start of the run and the size at the last sample, which is at `time`."""
        now, _ = self._now(newest)
        if now is None:
            return None
        since = max(0.0, time - self._aggregator.conditions.started)
        newest.size(since, now)
        return since, now

    def _at_the_end(self) -> NewestSample:
        """Return the last samples of a record that is not read to its end yet."""
        found = NewestSample(self._columns, self._newest.order)
        for line in self._samples.end():
            declared = parse_columns(line) if isinstance(line, dict) else None
            if declared is not None and set(declared) <= set(self._columns):
                found.declare(declared)
            elif declared is not None:
                break  # a new source; its values appear once everything is read
            elif isinstance(line, list) and line and is_sample(line):
                found.add(line)
                self._sized(found, float(line[0]))
        return found if found.time is not None else self._newest

    def _peaks(self, operations: list[RecordedOperation], newest: NewestSample) -> Peaks:
        """Return the peaks so far; lower bounds if the record is not read to its end yet."""
        peaks = self._aggregator.peaks(Candidates(ListedOperations(operations)))
        if newest is self._newest:
            return peaks
        tree = stopped(peaks.tree)
        most = max(newest.recent, key=lambda one: one[1], default=None)
        if most is not None and self._now(newest)[1] and (tree is None or most[1] > (tree.low or 0)):
            tree = at_least(most[1], Evidence.SAMPLES, at=round(most[0], 4))
        return peaks._replace(
            tree=tree, main=stopped(peaks.main), process=stopped(peaks.process), cgroup=stopped(peaks.cgroup)
        )

    def _live(self, record: ProcessRecord) -> None:
        """Update the living processes."""
        key = record.pid, record.start
        if record.event is ProcessEvent.EXIT:
            self._living.pop(key, None)
            return
        known = self._living.get(key) or LiveProcess(record.pid, record.start, None, None, None, None)
        self._living[key] = known._replace(
            command=record.command or known.command,
            argv=record.argv or known.argv,
            rss=record.rss if record.rss is not None else known.rss,
            peak=max(known.peak or 0, record.peak or 0) or None,
            time=record.time,
        )

    def _raised(self, operation: RecordedOperation) -> RecordedOperation:
        """Return an open operation with the resident size of its process, if that was read after its start."""
        sizes = [
            process.rss - self._aggregator.conditions.sum_error
            for process in self._living.values()
            if process.pid == operation.pid and process.rss and process.time >= operation.start
        ]
        return operation._replace(peak=raised_by_sample(operation.peak, max(sizes, default=0)))

    def _now(self, newest: NewestSample) -> tuple[int | None, bool]:
        """Return the current size, and whether it counts each page once and no cache."""
        latest = newest.latest
        if self._aggregator.conditions.own_cgroup and latest.usage is not None and latest.file is not None:
            return max(0, int(latest.usage - latest.file)), True
        return whole_of(latest.rss), False

    def _devices(self, newest: NewestSample) -> list[LiveDevice]:
        found: dict[str, dict[str, float]] = {}
        for column, value in zip(self._columns, newest.values, strict=True):
            identity = dict(column.attributes).get("hw.id")
            if identity is not None and value is not None and column.metric in _SHOWN | METRICS:
                found.setdefault(identity, {})[column.metric] = value
        return [
            LiveDevice(
                identity,
                whole_of(values.get(catalog.HW_GPU_MEMORY_USAGE)),
                whole_of(values.get(catalog.HW_GPU_MEMORY_LIMIT)),
                whole_of(values.get(catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE)),
                values.get(catalog.HW_GPU_UTILIZATION),
            )
            for identity, values in sorted(found.items())
        ]

    @property
    def interval(self) -> float:
        """Requested sampling interval in seconds; now, if it varies."""
        if self._fields.settings.get("interval") == AUTO:
            return auto_interval(time.time() - (self._fields.started.wall or 0.0))
        return self._fields.interval or 0.1

    @property
    def last_tick_wall(self) -> float | None:
        """Unix seconds of the last sample by the clock of the run's machine; `None` before the first."""
        wall, monotonic = self._fields.started
        if self._time is None or wall is None or monotonic is None:
            return None
        return wall + self._time - monotonic

    def close(self) -> None:
        """Close all descriptors."""
        self._follower.close()

"""Figures of a run in progress, from its record alone: memory now, peak so far, processes, time until the limit.

* Each update reads only new lines. A run of a day costs no more per update than a run of a minute, in time and in memory.
* The first update of a long record does not read all of it. Current figures come from its end. Each update reads more of
  the earlier part, within its time.
* Nothing is written and no process is contacted. Every user who can read the record can follow it from any terminal.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.model import Evidence, ProcessEvent
from otel_memwatch.record.fields import mapping, moment, number, texts, whole
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.format import PROCESSES_FILE, RUN_FILE, SAMPLES_FILE
from otel_memwatch.record.jsonl import MAX_LINE, open_regular, parse
from otel_memwatch.record.open import read_info
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.record.reader import process_record
from otel_memwatch.record.samples import is_tick, parse_columns
from otel_memwatch.record.schema import Sample, sample_maker
from otel_memwatch.run.aggregate import METRICS, RunAggregator
from otel_memwatch.run.attribution import RecordedCandidates
from otel_memwatch.run.ending import ending_of, state_of
from otel_memwatch.run.results import Peaks
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.exact import at_least
from otel_memwatch.truth.recording import stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_memwatch.model import Column, Ending, ProcessRecord, RecordedOperation, Value

_BLOCK = 1 << 20
_END = 256 << 10
"""Bytes at the end of the samples file that hold the current samples."""
_BUCKETS = 512
"""Parts of the curve to keep. At twice as many, pairs are merged."""
_PACE_SECONDS = 30.0
"""Time over which growth is measured."""
_PACE_TICKS = 8
_STEADY = 0.8
"""Least share of the variance of recent sizes that a line explains if growth is steady."""
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


class _GrowingFile:
    """Growing file of lines, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rewind()

    def rewind(self) -> None:
        """Start again at the beginning of the file."""
        self._offset, self._rest = 0, b""
        self.behind = False
        """True if time ran out before the end of the file."""

    def values(self, until: float) -> Iterator[Any]:
        """Yield the JSON values of the lines completed since the last call; nothing if the file does not exist.

        Reading stops at `until`, in monotonic seconds.
        """
        self.behind = False
        try:
            descriptor = open_regular(self._path)
        except OSError:
            return
        try:
            while data := os.pread(descriptor, _BLOCK, self._offset):
                self._offset += len(data)
                *lines, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > MAX_LINE:
                    self._rest = b""
                for line in lines:
                    value = parse(line)
                    if value is not None:
                        yield value
                if time.monotonic() >= until and len(data) == _BLOCK:
                    self.behind = True
                    return
        finally:
            os.close(descriptor)

    def end(self) -> list[Any]:
        """Return the JSON values of the last whole lines, read before or not."""
        try:
            descriptor = open_regular(self._path)
        except OSError:
            return []
        try:
            data = os.pread(descriptor, _END, max(0, os.fstat(descriptor).st_size - _END))
        finally:
            os.close(descriptor)
        return [value for line in data.split(b"\n")[1:-1] if (value := parse(line)) is not None]

    @property
    def share(self) -> float:
        """Part of the file read so far, 0 to 1."""
        try:
            return min(1.0, self._offset / max(1, os.stat(self._path).st_size)) if self.behind else 1.0
        except OSError:
            return 1.0


class _Newest:
    """Current figures from the last samples."""

    def __init__(self, columns: Sequence[Column], order: Sequence[int]) -> None:
        self.time: float | None = None
        """Monotonic seconds of the last sample."""
        self.values: tuple[Value, ...] = (None,) * len(columns)
        """Last known value of each column; some sources are not read at every sample."""
        self.latest = Sample(-math.inf)
        """Last known values by name."""
        self.order = order
        self.recent: deque[tuple[float, int]] = deque()
        """Times and sizes of the last `_PACE_SECONDS`."""
        self._columns = columns
        self._make = sample_maker(columns)

    def declare(self, columns: Sequence[Column]) -> None:
        """Declare the columns of the lines that follow."""
        self.order = [self._columns.index(column) for column in columns]

    def add(self, line: Sequence[Any]) -> Sample:
        """Add a line, and return it as a sample."""
        values: list[Value] = [None] * len(self._columns)
        for index, value in zip(self.order, line[1:], strict=False):
            values[index] = value
        self.values = tuple(old if new is None else new for old, new in zip(self.values, values, strict=True))
        self.time = float(line[0])
        self.latest = self._make((self.time, *self.values))
        return self._make((self.time, *values))

    def size(self, time: float, size: int) -> None:
        """Add the size at a sample."""
        self.recent.append((time, size))
        while self.recent and self.recent[0][0] < time - _PACE_SECONDS:
            self.recent.popleft()


class _SizeOverTime:
    """Maximum of each stretch of time; stretches become longer with the run."""

    def __init__(self) -> None:
        self._width = 0.1
        self._most: dict[int, int] = {}

    def add(self, time: float, value: int) -> None:
        bucket = int(time / self._width)
        self._most[bucket] = max(value, self._most.get(bucket, 0))
        while len(self._most) > 2 * _BUCKETS:
            merged: dict[int, int] = {}
            for place, most in self._most.items():
                merged[place // 2] = max(most, merged.get(place // 2, 0))
            self._most, self._width = merged, 2 * self._width

    def points(self) -> list[tuple[float, int]]:
        return [(place * self._width, most) for place, most in sorted(self._most.items())]


class LiveRun:
    """Run directory that is read repeatedly. Raises `RunError` if it holds no run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.info: Mapping[str, Any] = read_info(self.path / RUN_FILE)
        self._samples = _GrowingFile(self.path / SAMPLES_FILE)
        self._process_lines = _GrowingFile(self.path / PROCESSES_FILE)
        self._follower = OperationFollower(self.path)
        self._closed: deque[RecordedOperation] = deque(maxlen=_CLOSED)
        self._time: float | None = None
        self._begin(())

    def _begin(self, columns: tuple[Column, ...]) -> None:
        """Start again with these columns."""
        self._columns = columns
        self._newest = _Newest(columns, range(len(columns)))
        self._aggregator = RunAggregator(columns, self.info)
        self._curve = _SizeOverTime()
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
            self.info = read_info(self.path / RUN_FILE)
        state = state_of(self.info, self.path)
        while not self._read(until):
            pass
        newest = self._at_the_end() if self._samples.behind or self._process_lines.behind else self._newest
        while self._coming and newest.time is not None and self._coming[0].time <= newest.time:
            self._live(self._coming.popleft())
        followed = self._follower.poll()
        self._closed.extend(followed.closed)
        while followed.behind and time.monotonic() < until:
            followed = self._follower.poll()
            self._closed.extend(followed.closed)
        open_operations = self._follower.open_operations()
        self._aggregator.boundaries(self._follower.lines())
        started = self._aggregator.conditions.started
        last = None if newest.time is None else newest.time - started
        now, needed = self._now(newest)
        limit, owner = self._smallest_limit(newest)
        self._time = newest.time
        return LiveFigures(
            command=texts(self.info.get("command")),
            state=state,
            ending=ending_of(self.info, state, last, [operation.name for operation in open_operations]),
            seconds=last or 0.0,
            now=now,
            needed=needed,
            peaks=self._peaks([*self._closed, *open_operations], newest),
            limit=limit,
            limit_of=owner,
            pace=_pace(newest.recent),
            curve=self._curve_to(newest),
            processes=sorted(self._living.values(), key=lambda p: (-(p.rss or 0), p.pid)),
            operations=open_operations,
            devices=self._devices(newest),
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
            elif is_tick(line):
                self._tick(line)
        time = self._newest.time
        while self._waiting and time is not None and self._waiting[0].time <= time:
            self._aggregator.process(self._waiting.popleft())
        return True

    def _tick(self, line: Sequence[Any]) -> None:
        time = float(line[0])
        while self._waiting and self._waiting[0].time <= time:
            self._aggregator.process(self._waiting.popleft())
        self._aggregator.add(self._newest.add(line))
        size = self._sized(self._newest, time)
        if size is not None:
            self._curve.add(*size)

    def _sized(self, newest: _Newest, time: float) -> tuple[float, int] | None:
        """Return seconds since the start of the run and the size at the last sample, which is at `time`."""
        now, _ = self._now(newest)
        if now is None:
            return None
        since = max(0.0, time - self._aggregator.conditions.started)
        newest.size(since, now)
        return since, now

    def _at_the_end(self) -> _Newest:
        """Return the last samples of a record that is not read to its end yet."""
        found = _Newest(self._columns, self._newest.order)
        for line in self._samples.end():
            declared = parse_columns(line) if isinstance(line, dict) else None
            if declared is not None and set(declared) <= set(self._columns):
                found.declare(declared)
            elif declared is not None:
                break  # a new source; its values appear once everything is read
            elif isinstance(line, list) and line and is_tick(line):
                found.add(line)
                self._sized(found, float(line[0]))
        return found if found.time is not None else self._newest

    def _peaks(self, operations: list[RecordedOperation], newest: _Newest) -> Peaks:
        """Return the peaks so far; lower bounds if the record is not read to its end yet."""
        peaks = self._aggregator.peaks(RecordedCandidates(ListedOperations(operations)))
        if newest is self._newest:
            return peaks
        tree = stopped(peaks.tree)
        most = max(newest.recent, key=lambda one: one[1], default=None)
        if most is not None and self._now(newest)[1] and (tree is None or most[1] > (tree.low or 0)):
            tree = at_least(most[1], Evidence.SAMPLES, at=round(most[0], 4))
        return peaks._replace(
            tree=tree, main=stopped(peaks.main), process=stopped(peaks.process), cgroup=stopped(peaks.cgroup)
        )

    def _curve_to(self, newest: _Newest) -> list[tuple[float, int]]:
        points = self._curve.points()
        if newest is self._newest:
            return points
        after = points[-1][0] if points else -1.0
        return [*points, *(point for point in newest.recent if point[0] > after)]

    def _live(self, record: ProcessRecord) -> None:
        """Takes in who lives."""
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
        )

    def _now(self, newest: _Newest) -> tuple[int | None, bool]:
        latest = newest.latest
        if self._aggregator.conditions.own_cgroup and latest.usage is not None and latest.file is not None:
            return max(0, int(latest.usage - latest.file)), True
        return _whole(latest.rss), len(self._living) <= 1

    def _smallest_limit(self, newest: _Newest) -> tuple[int | None, str]:
        limits = mapping(self.info.get("limits"))
        group = [v for v in (_whole(newest.latest.limit), whole(limits.get("cgroup_bytes"))) if v]
        if group:
            return min(group), "control group"
        machine = whole(limits.get("host_bytes")) or whole(mapping(self.info.get("host")).get("memory_bytes"))
        return machine, "machine"

    def _devices(self, newest: _Newest) -> list[LiveDevice]:
        found: dict[str, dict[str, float]] = {}
        for column, value in zip(self._columns, newest.values, strict=True):
            identity = dict(column.attributes).get("hw.id")
            if identity is not None and value is not None and column.metric in _SHOWN | METRICS:
                found.setdefault(identity, {})[column.metric] = value
        return [
            LiveDevice(
                identity,
                _whole(values.get(catalog.HW_GPU_MEMORY_USAGE)),
                _whole(values.get(catalog.HW_GPU_MEMORY_LIMIT)),
                _whole(values.get(catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE)),
                values.get(catalog.HW_GPU_UTILIZATION),
            )
            for identity, values in sorted(found.items())
        ]

    @property
    def interval(self) -> float:
        """Requested sampling interval in seconds."""
        return number(self.info.get("interval")) or 0.1

    @property
    def last_tick_wall(self) -> float | None:
        """Unix seconds of the last sample by the clock of the run's machine; `None` before the first."""
        started = mapping(self.info.get("started"))
        wall, monotonic = moment(started.get("wall")), moment(started.get("monotonic"))
        if self._time is None or wall is None or monotonic is None:
            return None
        return wall + self._time - monotonic

    def close(self) -> None:
        """Close all descriptors."""
        self._follower.close()


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _pace(recent: Sequence[tuple[float, int]]) -> float | None:
    """Return growth in bytes per second by least squares; `None` if no line fits the recent sizes."""
    if len(recent) < _PACE_TICKS:
        return None
    count = len(recent)
    mean_time = sum(time for time, _ in recent) / count
    mean = sum(value for _, value in recent) / count
    over = sum((time - mean_time) ** 2 for time, _ in recent)
    spread = sum((value - mean) ** 2 for _, value in recent)
    both = sum((time - mean_time) * (value - mean) for time, value in recent)
    if over <= 0 or spread <= 0 or both <= 0 or both * both / (over * spread) < _STEADY:
        return None
    return both / over

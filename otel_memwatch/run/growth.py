"""Curves of memory over a whole run in a bounded number of points, and what they show about its growth (`truth.growth`)."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.record.fields import mapping, moment, number, text, whole
from otel_memwatch.record.schema import whole_of
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.growth import LEAK, GrowthShape, Point, judge
from otel_memwatch.truth.service_growth import LEAST_SECONDS, ServiceLoad, judge_service

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.record.operation_lines import OperationRow
    from otel_memwatch.record.schema import Sample

_POINTS = 192
"""Points of a curve; with more, two neighbours become one."""
_BINS, _FIRST_BIN = 512, 0.1
"""Periods of a run's curve, and seconds of one at first."""
_SERIES = 256
"""Operations by process and name that have a curve."""
_INSIDE = 0.5
"""Share of the growth that lies within the repeats themselves."""
_ANONYMOUS = 0.6
"""Share of the growth that samples must show as memory of no file: resident pages of a mapped file are no leak."""
HANDLES = ("threads", "descriptors", "processes")
"""Fields of a sample that count handles."""
HANDLES_KIND, HISTORY_KIND = "handles", "recorded_history"
_HANDLE, _LEAST_HANDLES = 1 << 20, 16
"""Bytes that a handle counts as for the rules on memory, and the least growth that matters."""
_HISTORY = 64 << 20
"""Bytes that PyTorch's record of its allocations and snapshots of it may take (`in_target.torch_snapshot.snapshots`)."""
_FASTEST = 1e15
"""Bytes in a second beyond any rate: a larger number of a record is damage."""
_MOST = 16
"""Findings of a run."""


class GrowthFinding(NamedTuple):
    """One sentence about the growth of a run's memory. Rates are in bytes per second."""

    kind: str
    """A kind of `truth.growth` or `truth.heap`."""
    operation: str | None
    """Name of the repeated operation; `None`: the tree over time."""
    pid: int | None
    bytes: int
    """Growth in the judged part of the run."""
    rate: float
    low: float
    high: float
    """Slowest and fastest rate in parts of it; an observed range, no bound."""
    seconds: float
    """Duration of the judged part."""
    repeats: int | None = None
    """Repeats in it."""
    inside: bool = True
    """True if memory grows within the operation, not between two of them."""
    allocator: str | None = None
    """Allocator of memory that is kept: then `bytes` lie between `low` and `high`, and there is no rate."""
    anonymous: int | None = None
    """Anonymous memory of its process, in bytes."""
    threads: int | None = None
    """Threads of its process."""
    counted: str | None = None
    """A name of `HANDLES`: then rates are numbers per second, and `bytes` is 0."""

    @property
    def per_repeat(self) -> tuple[float, float, float] | None:
        """Bytes that each repeat keeps, and their range; `None`: not of an operation."""
        if not self.repeats:
            return None
        seconds = self.seconds / self.repeats
        return self.rate * seconds, self.low * seconds, self.high * seconds

    @classmethod
    def each_of(cls, written: Any) -> list[GrowthFinding]:
        """Return the findings of `run.json`."""
        found = map(cls.of, written if isinstance(written, list) else ())
        return [one for one in found if one is not None]

    @classmethod
    def of(cls, written: Any) -> GrowthFinding | None:
        """Return a finding of `run.json`; `None`: malformed."""
        fields = mapping(written)
        kind, bytes_, seconds = (
            text(fields.get("kind")),
            whole(fields.get("bytes")),
            moment(fields.get("seconds")),
        )
        rates = [number(fields.get(name)) for name in ("rate", "low", "high")]
        if kind is None or bytes_ is None or seconds is None or seconds < 0:
            return None
        rate, low, high = (min(max(value or 0.0, -_FASTEST), _FASTEST) for value in rates)
        operation, pid, repeats = (
            text(fields.get("operation")),
            whole(fields.get("pid")),
            whole(fields.get("repeats")),
        )
        inside, allocator = fields.get("inside") is not False, text(fields.get("allocator"))
        anonymous, threads = whole(fields.get("anonymous")), whole(fields.get("threads"))
        more = repeats, inside, allocator, anonymous, threads, text(fields.get("counted"))
        return cls(kind, operation, pid, bytes_, rate, low, high, seconds, *more)


def without_history(one: GrowthFinding) -> GrowthFinding:
    """Return a finding of a run with `--torch-snapshot`: growth that the option may have caused is no leak."""
    explained = one.kind == LEAK and one.bytes <= _HISTORY
    return one._replace(kind=HISTORY_KIND) if explained else one


def exported(found: Sequence[GrowthFinding]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return attributes and values by metric: rates of leaks by operation, of handles, and bytes that allocators keep."""
    leaks: dict[str, float] = {}
    kept: dict[str, float] = {}
    for one in found:
        if one.kind == LEAK:  # without an operation: of the whole run
            leaks[one.operation or ""] = leaks.get(one.operation or "", 0.0) + one.rate
        elif one.allocator is not None:
            kept[one.allocator] = kept.get(one.allocator, 0.0) + one.bytes
    return {
        catalog.MEMWATCH_RUN_LEAK: [
            ({"memwatch.operation.name": name} if name else {}, rate) for name, rate in leaks.items()
        ],
        catalog.MEMWATCH_RUN_HANDLE_LEAK: [
            ({"memwatch.handle.type": one.counted}, one.rate) for one in found if one.counted is not None
        ],
        catalog.MEMWATCH_RUN_KEPT: [({"memwatch.allocator": name}, bytes_) for name, bytes_ in kept.items()],
    }


class FloorCurve:
    """At most `_POINTS` points: with more, each keeps the smallest value of twice as many neighbours."""

    __slots__ = ("_points", "_size", "_waiting", "number")

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._size = self._waiting = 1
        self.number = 0

    def add(self, value: float, time: float) -> None:
        """Add the next value."""
        point = Point(self.number, value, time)
        self.number += 1
        if self._waiting < self._size:
            self._waiting += 1
            if value < self._points[-1].value:
                self._points[-1] = point
            return
        if len(self._points) >= _POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [min(pair, key=lambda one: one.value) for pair in pairs]
            self._size *= 2
        self._points.append(point)
        self._waiting = 1

    def points(self) -> list[Point]:
        """Return the points, without the last one while it covers fewer values than the others."""
        return self._points if self._waiting == self._size else self._points[:-1]


class TimeFloors:
    """Smallest memory and the load in each of at most `_BINS` periods, which become longer as the run ages."""

    def __init__(self) -> None:
        self._width = _FIRST_BIN
        self._bins: list[tuple[int, Point, ServiceLoad]] = []

    def add(self, value: float, load: ServiceLoad) -> None:
        """Add a sample."""
        time, index = load.time, int(load.time / self._width)
        if self._bins and self._bins[-1][0] == index:
            before = self._bins[-1][1]
            self._bins[-1] = index, before if before.value <= value else Point(time, value, time), load
            return
        self._bins.append((index, Point(time, value, time), load))
        while len(self._bins) > _BINS:
            self._width *= 2
            every, self._bins = self._bins, []
            for _, point, load_then in every:
                index, floor = int(load_then.time / self._width), point
                if self._bins and self._bins[-1][0] == index:
                    floor = min(point, self._bins.pop()[1], key=lambda one: one.value)
                self._bins.append((index, floor, load_then))

    def points(self) -> list[Point]:
        """Return the floors by time."""
        return [point for _, point, _ in self._bins]

    def finding(self, error: float) -> GrowthFinding | None:
        """Return the growth of a service; `None`: nothing to say, or too early."""
        growth = judge_service(self.points(), [load for _, _, load in self._bins], error)
        recorded = self._bins[-1][2].time - self._bins[0][2].time if self._bins else 0.0
        if growth is None or not (growth.kind == LEAK or recorded < LEAST_SECONDS):
            return None
        rate, low, high = (round(value, 3) for value in (growth.rate, growth.low, growth.high))
        seconds = round(growth.end.time - growth.start.time, 3)
        return GrowthFinding(growth.kind, None, None, round(growth.rise), rate, low, high, seconds)


class HandleFloors:
    """Smallest numbers of threads, descriptors and processes over the time of a run."""

    def __init__(self) -> None:
        self._floors = {name: TimeFloors() for name in HANDLES}

    def add(self, sample: Sample, load: ServiceLoad) -> None:
        """Add a sample."""
        for name, floors in self._floors.items():
            number = whole_of(getattr(sample, name))
            if number is not None:  # a growing number of processes is no load of theirs
                floors.add(number * _HANDLE, load._replace(processes=1) if name == "processes" else load)

    def findings(self) -> list[GrowthFinding]:
        """Return handles that a service does not give back: they grow like a leak of memory."""
        found = []
        for name, floors in self._floors.items():
            leak = floors.finding(0.0)
            if leak is not None and leak.kind == LEAK and leak.bytes >= _LEAST_HANDLES * _HANDLE:
                rates = (round(value / _HANDLE, 6) for value in (leak.rate, leak.low, leak.high))
                rate, low, high = rates
                found.append(
                    leak._replace(kind=HANDLES_KIND, bytes=0, rate=rate, low=low, high=high, counted=name)
                )
        return found


class _Series:
    """Repeats of one operation in one process."""

    __slots__ = ("curve", "kept", "kept_so_far", "seconds")

    def __init__(self) -> None:
        self.curve, self.kept = FloorCurve(), FloorCurve()
        """Memory at the end of each repeat, and bytes by which the process grew within the repeats until then."""
        self.kept_so_far = 0
        self.seconds = 0.0

    def kept_between(self, start: float, end: float) -> float:
        """Return the growth within the repeats between two positions of the curve."""
        points = self.kept.points()
        before, after = (
            [point.value for point in points if point.position <= place] or [points[0].value]
            for place in (start, end)
        )
        return after[-1] - before[-1]


class Repeats:
    """Resident memory at the end of each repeat of an operation. Not thread-safe."""

    def __init__(self) -> None:
        self._series: dict[tuple[int, str], _Series] = {}

    def add(self, row: OperationRow) -> None:
        """Add a closed operation. Costs some microseconds."""
        start, end = row.levels()
        if start is None or end is None:
            return
        key = row.pid, series_name(row.name)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= _SERIES:
                return
            series = self._series[key] = _Series()
        series.curve.add(end, row.end)
        series.seconds += row.end - row.start
        series.kept_so_far += end - start
        series.kept.add(series.kept_so_far, row.end)

    def findings(self, anonymous: TimeFloors, error: float) -> list[GrowthFinding]:
        """Return at most one leak of each process, and other kinds of growth of its longest operation.

        Args:
            anonymous: memory of no file over the time of the run.
            error: of one reading of resident memory, in bytes.
        """
        found: dict[int, list[tuple[_Series, GrowthFinding]]] = {}
        for (pid, name), series in self._series.items():
            points = series.curve.points()
            growth = judge(points, error)
            if growth is None or (growth.kind == LEAK and not _is_anonymous(growth, anonymous)):
                continue
            found.setdefault(pid, []).append((series, _finding(name, pid, series, growth)))
        chosen = [_innermost(of_process) for of_process in found.values()]
        return sorted(chosen, key=lambda one: (one.kind != LEAK, -one.bytes))[:_MOST]


def _finding(name: str, pid: int, series: _Series, growth: GrowthShape) -> GrowthFinding:
    repeats = round(growth.end.position - growth.start.position)
    seconds = max(1e-6, growth.end.time - growth.start.time)
    rate, low, high = (
        round(value * repeats / seconds, 3) for value in (growth.rate, growth.low, growth.high)
    )
    kept = series.kept_between(growth.start.position, growth.end.position)
    inside = kept >= _INSIDE * (growth.end.value - growth.start.value)
    return GrowthFinding(
        growth.kind, name, pid, round(growth.rise), rate, low, high, round(seconds, 6), repeats, inside
    )


def _innermost(found: Iterable[tuple[_Series, GrowthFinding]]) -> GrowthFinding:
    """Return the leak of the shortest operation that the growth lies in; without a leak, the finding of the longest one.

    A step inside an epoch grows like the epoch.
    """
    leaks = [(series, one) for series, one in found if one.kind == LEAK]
    if not leaks:
        return max(found, key=lambda pair: pair[0].seconds)[1]
    inside = [pair for pair in leaks if pair[1].inside] or leaks
    return min(inside, key=lambda pair: pair[0].seconds / pair[0].curve.number)[1]


def _is_anonymous(growth: GrowthShape, anonymous: TimeFloors) -> bool:
    """Return whether samples show that most of the growth is memory of no file."""
    begin, finish = growth.start.time, growth.end.time
    # Later samples may show the end of the process.
    samples = [one for one in anonymous.points() if one.time <= finish]
    if not samples:
        return False
    before = next((one for one in reversed(samples) if one.time <= begin), samples[0])
    after = samples[-1]
    covered = (after.time - max(before.time, begin)) / max(1e-9, finish - begin)
    return covered >= _INSIDE and after.value - before.value >= _ANONYMOUS * growth.rise * covered

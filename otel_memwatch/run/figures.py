"""THE table of figures: each number by which a run is reported, judged, indexed, exported and tracked, once.

`FigureRow.of` reads a figure from a run. These follow from the table:

* budgets and comparisons
* rows of the run index
* OpenMetrics and OTLP at the end of a run
* trackers
* the wording of figures

Figures of operations have no row, because the program chooses their names. Each is the largest of its repeats:

* `operation:NAME`: memory of the whole tree while NAME was open.
* `operation-process:NAME`: memory of the process that NAME ran in.

Plugins may add further names, as for tests: their figures are bytes.
"""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.model import Certainty, Peak
from otel_memwatch.record.git_head import commit_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_memwatch.record.run_info_schema import HostFields
    from otel_memwatch.run import RecordedRun

_LEAST_SAMPLES = 2
"""Samples that must have counted threads before a figure can be `alone`."""


class Figure(NamedTuple):
    """One number of one run, with its bounds."""

    value: float
    """Bytes or seconds."""
    certainty: Certainty
    low: float | None
    """Lower bound; `None`: not known."""
    high: float | None
    """Upper bound; `None`: not known."""
    alone: bool = False
    """True if one process with one thread made it, as far as samples show: then repeated runs give the same value."""
    basis: str = ""
    """Way of measuring, for figures that have several. Only figures of one basis are compared."""

    @classmethod
    def measured(cls, value: float, *, alone: bool = False, basis: str = "") -> Figure:
        """Return an exact scalar: a time, a count."""
        return cls(value, Certainty.EXACT, value, value, alone, basis)

    @classmethod
    def of_peak(cls, peak: Peak, *, alone: bool = False, basis: str = "") -> Figure:
        """Return a peak as a figure. A verdict holds for all memory, so the upper bound includes excluded files in memory.

        Example: 0.5 to 15 MiB, excluding 60 MiB that went to /dev/shm, or to a pipe: a budget of 30 MiB may be exceeded.
        """
        high = None if peak.high is None else peak.high + peak.excluded_bytes
        return cls(peak.bytes, peak.certainty, peak.low, high, alone, basis)


class Conditions(NamedTuple):
    """Machine and settings of a run. Memory is compared if all but `host` are alike, times only if `host` is too."""

    system: str = ""
    """Kernel with the numbers of its version that decide how memory is counted, and the machine: "Linux 6.18 x86_64"."""
    cpus: int | None = None
    memory_bytes: int | None = None
    """Memory of the machine."""
    allocator: str = ""
    """Settings of the memory allocator in the environment: "MALLOC_ARENA_MAX=2", "LD_PRELOAD=libjemalloc.so.2"."""
    host: str = ""
    """A digest that identifies the host. A baseline may be published, so it is not the host's name."""

    def differ_from(self, other: Conditions) -> str | None:
        """Return why memory of the two is not comparable; `None` if it is."""
        if self.system != other.system:
            return f"{other.system or 'an unknown kernel'} against {self.system or 'an unknown kernel'}"
        if self.cpus != other.cpus:
            return f"{other.cpus or 'unknown'} processors against {self.cpus or 'unknown'}"
        if self.allocator != other.allocator:
            return f"{other.allocator or 'no setting'} of the allocator against {self.allocator or 'none'}"
        if _apart(self.memory_bytes, other.memory_bytes):
            return f"a machine of {_gib(other.memory_bytes)} against one of {_gib(self.memory_bytes)}"
        return None


def _apart(one: int | None, other: int | None) -> bool:
    """Return whether sizes of machines differ by more than firmware and kernels reserve."""
    if one is None or other is None:
        return one is not other
    return abs(one - other) > 0.1 * max(one, other)


def _gib(value: int | None) -> str:
    return "unknown size" if value is None else f"{value / (1 << 30):.1f} GiB"


class RunFigures(NamedTuple):
    """All figures of one run."""

    figures: Mapping[str, Figure]
    conditions: Conditions = Conditions()
    started: float = 0.0
    """Unix seconds."""
    name: str = ""
    """Name of the run in messages."""
    command: tuple[str, ...] = ()
    """Command with its arguments; empty: unknown."""
    ratio: float | None = None
    """Memory as a multiple of the prediction; `None`: none."""
    commit: str = ""
    """Empty: unknown."""


def largest(figures: Sequence[Figure], *, alone: bool = False) -> Figure:
    """Return the largest of several figures of one kind.

    Its bounds are the largest of theirs. Its certainty is the lowest of all figures that may be the largest.
    """
    top = max(figures, key=lambda one: one.value)
    if len(figures) == 1:
        return top._replace(alone=alone)
    low = max((one.low for one in figures if one.low is not None), default=None)
    highs = [one.high for one in figures if one.high is not None]
    high = max(highs) if len(highs) == len(figures) else None
    candidates = {one.certainty for one in figures if one.high is None or low is None or one.high >= low}
    certainty = top.certainty
    if Certainty.SAMPLED in candidates:
        certainty = Certainty.SAMPLED
    elif candidates != {Certainty.EXACT}:
        certainty = Certainty.INTERVAL
    return Figure(top.value, certainty, low, high, alone, top.basis)


if TYPE_CHECKING:
    Reading = Peak | Figure | float | None


class FigureRow(NamedTuple):
    """One figure of every run."""

    name: str
    unit: str
    """"By", "s", or another unit as in the catalogue."""
    words: str
    of: Callable[[RecordedRun], Reading]
    metric: tuple[str, Mapping[str, str]] | None = None
    """Name in the catalogue and attributes, in exports of the end of a run."""
    metric_high: str | None = None
    """Metric of a peak's upper bound."""
    field: str = ""
    """Field of the run index; empty: none."""
    judged: bool = False
    """Budgets, comparisons and trackers include it."""

    @property
    def is_whole(self) -> bool:
        """Return whether the figure is a number of bytes or things, not seconds or a share."""
        return self.unit not in ("s", "1")


def _total(key: str) -> Callable[[RecordedRun], float | None]:
    return lambda run: run.totals.get(key)


def _largest_gpu(run: RecordedRun) -> Figure | None:
    """Return the largest GPU memory of the run's processes; of all programs, if the driver does not list processes."""
    peaks = run.peaks
    found = [
        Figure.of_peak(peak, basis=_BY_PROCESS if device in peaks.gpu_tree else "")
        for device, peak in peaks.gpu_of_run.items()
    ]
    return largest(found) if found else None


_BY_PROCESS = "the driver's lists of processes"
"""Basis of GPU memory that only the run's processes held; other figures are those of whole devices."""


MEMORY, PROCESS, GPU, WRITTEN, CPU, SECONDS = "memory", "process", "gpu", "written", "cpu", "seconds"
STALLED = "stalled"
"""Share of the time for which a run waited for memory or was stopped by a CPU limit. Only budgets judge it."""
OPERATION, OPERATION_PROCESS = "operation:", "operation-process:"
"""Beginnings of the names of operations' figures."""

_READ, _WRITE = {"disk.io.direction": "read"}, {"disk.io.direction": "write"}
_MAJOR = {"system.paging.fault.type": "major"}
# fmt: off
FIGURES = (
    FigureRow(MEMORY, "By", "memory", lambda run: run.peaks.tree, (catalog.MEMWATCH_TREE_MEMORY_PEAK, {}),
              catalog.MEMWATCH_TREE_MEMORY_PEAK_HIGH, "memory", judged=True),
    FigureRow(PROCESS, "By", "largest process", lambda run: run.peaks.process, (catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK, {}),
              catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH, "process", judged=True),
    FigureRow("main", "By", "main process", lambda run: run.peaks.main, (catalog.MEMWATCH_PROCESS_MEMORY_PEAK, {}), field="main"),
    FigureRow("cgroup", "By", "cgroup", lambda run: run.peaks.cgroup, field="cgroup"),
    FigureRow(GPU, "By", "GPU memory", _largest_gpu, field="gpu", judged=True),
    FigureRow("read", "By", "read from disks", _total("read_bytes"), (catalog.MEMWATCH_TREE_DISK_IO, _READ), field="read"),
    FigureRow(WRITTEN, "By", "written to disks", _total("write_bytes"), (catalog.MEMWATCH_TREE_DISK_IO, _WRITE), field="written", judged=True),
    FigureRow(CPU, "s", "CPU time", _total("cpu_seconds"), (catalog.MEMWATCH_TREE_CPU_TIME, {}), field="cpu", judged=True),
    FigureRow(SECONDS, "s", "duration", lambda run: run.seconds, (catalog.PROCESS_UPTIME, {}), field="seconds", judged=True),
    FigureRow("faults", "{fault}", "major page faults", _total("major_faults"), (catalog.MEMWATCH_TREE_PAGING_FAULTS, _MAJOR), field="major_faults"),
    FigureRow("processes", "{process}", "processes", _total("processes"), field="processes"),
    FigureRow(STALLED, "1", "stalled time", lambda run: run.stalls.largest, field="stalled"),
    FigureRow("exit", "{code}", "exit code", lambda run: run.ending.shell_code, (catalog.MEMWATCH_RUN_EXIT_CODE, {})),
)
# fmt: on

NAMES = tuple(row.name for row in FIGURES if row.judged)
"""Judged figures of every run, in the order of tables."""

TIMES = frozenset(row.name for row in FIGURES if row.judged and row.unit == "s")
"""Judged figures in seconds. They depend on the machine's speed and on other load, too."""

RANK = "rank"
"""Figure that only groups have: the memory of the largest rank."""

_WORDS = {row.name: row.words for row in FIGURES if row.judged or row.name == STALLED} | {
    RANK: "largest rank"
}


def unit_of(name: str) -> str:
    """Return the unit of a judged figure: "s", "By" or, for a share, "1"."""
    return "1" if name == STALLED else "s" if name in TIMES else "By"


def figure_name(name: str) -> str:
    """Return the words of a figure in a sentence: "operation Train" for "operation:Train"."""
    if name.startswith(OPERATION):
        return f"operation {clean(name.removeprefix(OPERATION))}"
    if name.startswith(OPERATION_PROCESS):
        return f"process of operation {clean(name.removeprefix(OPERATION_PROCESS))}"
    return _WORDS.get(name, clean(name))


def order(name: str) -> tuple[int, str]:
    """Return a key that sorts judged figures as tables do."""
    if name in NAMES:
        return NAMES.index(name), ""
    return len(NAMES), name.partition(":")[2] + name


def number_of(reading: Reading) -> float | None:
    """Return the number of a figure that a row reads."""
    if isinstance(reading, Peak):
        return reading.bytes
    return reading.value if isinstance(reading, Figure) else reading


class Prediction(NamedTuple):
    """A figure as it was predicted and as it was measured, in its unit."""

    name: str
    unit: str
    words: str
    predicted: float
    measured: float | None
    """Best estimate; `None`: unknown."""

    @property
    def ratio(self) -> float | None:
        """Measured figure as a multiple of the prediction."""
        return None if self.measured is None else self.measured / self.predicted


def predictions(run: RecordedRun) -> list[Prediction]:
    """Return the figures that `--predicted` names, in the order of tables."""
    found = run.predicted
    return [
        Prediction(row.name, row.unit, row.words, found[row.name], number_of(row.of(run)))
        for row in FIGURES
        if row.name in found
    ]


def at_end(run: RecordedRun) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield metric, attributes and value of each known figure at the end of a run."""
    for row in FIGURES:
        if row.metric is not None and (value := number_of(row.of(run))) is not None:
            yield *row.metric, value


def bounded_at_end(run: RecordedRun) -> Iterator[tuple[str, int]]:
    """Yield metric and bytes of the bounds of each peak that has a separate metric for its upper bound."""
    for row in FIGURES:
        peak = row.of(run) if row.metric_high else None
        if isinstance(peak, Peak) and row.metric and row.metric_high:
            if peak.low is not None:  # else the value is no more than the upper bound
                yield row.metric[0], peak.bytes
            if peak.high is not None:
                yield row.metric_high, peak.high


# -- of a recorded run


def figures_of(run: RecordedRun, *, operations: bool = True, compared: bool = True) -> RunFigures:
    """Return the judged figures of a run that has ended. Unknown ones are left out.

    Args:
        run: the run.
        operations: include those of its operations. They need numpy.
        compared: determine which are `alone`, for a comparison. This needs numpy.

    """
    workers = _Workers(run, looked_at=compared)
    # A cgroup omits files, resident sizes do not.
    basis = "the cgroup" if run.fields.own_cgroup else "the processes"
    if run.fields.portable:
        basis = "sizes at samples"
    figures: dict[str, Figure] = {}
    for row in FIGURES:
        reading = row.of(run) if row.judged else None
        window = (0.0, run.seconds)
        if isinstance(reading, Peak):
            if reading.at is not None:
                window = reading.at - (run.interval or 0.0), reading.at
            figure = Figure.of_peak(reading, basis=basis if row.name == MEMORY else "")
        elif isinstance(reading, Figure):
            figure = reading
        elif reading is not None:
            figure = Figure.measured(reading)
        else:
            continue
        figures[row.name] = figure if row.unit == "s" else figure._replace(alone=workers.alone(*window))
    if operations:
        figures.update(_operations(run, workers, basis))
    ratio = next((one.ratio for one in predictions(run) if one.name == MEMORY), None)
    return RunFigures(
        figures,
        conditions_of(run),
        run.started_wall,
        str(run.path),
        tuple(run.command),
        ratio,
        commit_of(run.info),
    )


def _operations(run: RecordedRun, workers: _Workers, basis: str) -> dict[str, Figure]:
    """Return the largest figures of the operations of each name."""
    peaks: dict[str, list[Figure]] = {}
    times: dict[str, tuple[float, float]] = {}
    for operation in run.iterate_operations():
        name = operation.operation.name
        for key, peak, kind in (
            (OPERATION + name, operation.tree_peak, basis),
            (OPERATION_PROCESS + name, operation.operation.peak, ""),
        ):
            if peak is not None:
                peaks.setdefault(key, []).append(Figure.of_peak(peak, basis=kind))
                start, end = times.get(key, (operation.start, operation.end))
                times[key] = min(start, operation.start), max(end, operation.end)
    return {key: largest(found, alone=workers.alone(*times[key])) for key, found in peaks.items()}


class _Workers:
    """Processes and threads that were at work at one time.

    Processes are in one line if each is a child of the one before: a process that waits for its child is not at work.
    """

    def __init__(self, run: RecordedRun, *, looked_at: bool) -> None:
        self._run = run
        self._alone_until: float | None = None
        self._read = not looked_at

    def alone(self, start: float, end: float) -> bool:
        """Return whether no sample up to `end` counted a second thread, and the processes from `start` on are in one line."""
        if not self._read:
            self._alone_until, self._read = self._first_crowd(), True
        if self._alone_until is None or end > self._alone_until:
            return False
        alive = [p for p in self._run.processes if p.start <= end and (p.end is None or p.end >= start)]
        pids = {process.pid for process in alive}
        parents = [process.ppid for process in alive if process.ppid in pids]
        return len(parents) == len(set(parents)) and len(parents) >= len(alive) - 1

    def _first_crowd(self) -> float | None:
        """Return the time of the last sample before one with more threads than processes; `None`: too few samples."""
        threads, processes = catalog.MEMWATCH_TREE_THREAD_COUNT, catalog.MEMWATCH_TREE_PROCESS_COUNT
        samples = self._run.samples([threads, processes])
        counted, alive = samples.column(threads), samples.column(processes)
        known = counted == counted  # noqa: PLR0124 - not NaN
        if known.sum() < _LEAST_SAMPLES:
            return None
        crowds = (counted > alive).nonzero()[0]
        return float("inf") if not len(crowds) else float(samples.time[crowds[0]]) - 1e-6


def conditions_of(run: RecordedRun) -> Conditions:
    """Return machine and settings of a run."""
    import hashlib

    host, settings = run.fields.host, run.fields.allocator
    return Conditions(
        system_of(host),
        host.cpus,
        host.memory_bytes,
        " ".join(f"{name}={os.path.basename(settings[name])}" for name in sorted(settings)),
        hashlib.sha256((host.name or "").encode("utf-8", "surrogateescape")).hexdigest()[:12],
    )


def system_of(host: HostFields) -> str:
    """Return kernel and machine: "Linux 6.18 x86_64". The first two numbers of the version decide how memory is counted."""
    release = ".".join((host.release or "").split("-")[0].split(".")[:2])
    return " ".join(part for part in (host.system, release, host.machine) if part)

"""Conversion of a recorded run to a timeline of phases."""

from __future__ import annotations

import math

from otel_memwatch import catalog
from otel_memwatch.compat.qefficient.phases import COMPLETION, CPU_SECONDS, OWNER, UNMARKED, Phase, Timeline
from otel_memwatch.compat.shared_recording import regular_samples
from otel_memwatch.model import Certainty
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.run import OperationFigures, RecordedRun

    Array = NDArray[np.float64]

_SAME = 0.98
"""Share of a peak above which another peak counts as equal."""

_FIELDS = ("rss", "virtual", "cpu_seconds", "read_chars", "write_chars")
_CPUS = catalog.SYSTEM_CPU_LOGICAL_COUNT


class Selection(NamedTuple):
    """A part of a run. Times are monotonic seconds."""

    windows: Sequence[tuple[float, float]] = ((-math.inf, math.inf),)
    """Time windows to include."""
    owner: str | None = None
    """Profiler of the phases to include; `None`: all outermost operations."""
    own_peak: Sequence[Any] | None = None
    """High-water mark of the program from another source: bytes, and the times between which it had it."""
    deltas: Mapping[str, float] = {}
    """Growth of the tree's memory in a phase in bytes, by operation ID, if another source reports it."""
    cpu: bool = True
    disk: bool = True
    interval: float | None = None
    """Requested seconds between samples; `None`: the run's interval."""
    completed: float | None = None
    """Time at which the end of the last phase was marked; `None`: the end of the run, if it has ended."""


def timeline(run: RecordedRun, chosen: Selection | None = None) -> Timeline:
    """Return the timeline of a run, or of the chosen part."""
    import numpy as np

    chosen = chosen or Selection()
    samples = run.samples([*(FIELDS[field][0] for field in _FIELDS), _CPUS])
    rss, moments = samples.field("rss"), samples.time + run.started
    inside = [(since <= moments) & (moments <= until) for since, until in chosen.windows]
    # A process that is ending has no memory any more, and a sample after the end has no process.
    kept = (rss > 0) & np.logical_or.reduce(inside)
    kept &= regular_samples(samples.time, np.where(kept, rss, np.nan), run.interval, ended=True)
    time, rss = samples.time[kept], rss[kept]
    origin = float(time[0]) if len(time) else 0.0
    vms, read, written = (
        _known(samples.field(field)[kept]) for field in ("virtual", "read_chars", "write_chars")
    )
    processors = float(_known(samples.column(_CPUS)).max(initial=0)) or float(run.host.get("cpus") or 1)
    cpu = _percent(time, samples.field("cpu_seconds")[kept], processors)
    peak, at = _peak(run, chosen, time, rss)
    return Timeline(
        started=run.started_wall + origin,
        times=(time - origin).tolist(),
        rss=rss.tolist(),
        vms=vms.tolist(),
        cpu=cpu.tolist() if chosen.cpu else [],
        read=read.tolist() if chosen.disk else [],
        written=written.tolist() if chosen.disk else [],
        read_rate=_rate(time, read).tolist(),
        write_rate=_rate(time, written).tolist(),
        phases=_phases(run, chosen, origin),
        interval=chosen.interval or run.interval or 0.0,
        peak_rss=peak,
        peak_rss_time=None if at is None else at - origin,
        peak_vms=float(vms.max(initial=0)),
        peak_vms_time=float(time[int(vms.argmax())]) - origin if len(time) else None,
    )


def joined(parts: Sequence[Timeline]) -> Timeline:
    """Join several recordings of one program in their order."""
    first, *others = [part for part in parts if part.times] or parts
    for other in others:
        shift = other.started - first.started
        later = first.peak_rss < other.peak_rss
        highest = first.peak_vms < other.peak_vms
        first = Timeline(
            started=first.started,
            times=[*first.times, *(time + shift for time in other.times)],
            rss=[*first.rss, *other.rss],
            vms=[*first.vms, *other.vms],
            cpu=[*first.cpu, *other.cpu],
            read=[*first.read, *other.read],
            written=[*first.written, *other.written],
            read_rate=[*first.read_rate, *other.read_rate],
            write_rate=[*first.write_rate, *other.write_rate],
            phases=[*first.phases, *(phase._replace(start=phase.start + shift) for phase in other.phases)],
            interval=first.interval,
            peak_rss=max(first.peak_rss, other.peak_rss),
            peak_rss_time=_moved(other.peak_rss_time, shift) if later else first.peak_rss_time,
            peak_vms=max(first.peak_vms, other.peak_vms),
            peak_vms_time=_moved(other.peak_vms_time, shift) if highest else first.peak_vms_time,
        )
    return first


def _moved(time: float | None, shift: float) -> float | None:
    return None if time is None else time + shift


def _known(values: Array) -> Array:
    """Replace each missing value by the previous known one, or by the first known one if there is none before."""
    import numpy as np

    there = ~np.isnan(values)
    if not there.any():
        return np.zeros(len(values))
    last = np.maximum.accumulate(np.where(there, np.arange(len(values)), int(there.argmax())))
    filled: Array = values[last]
    return filled


def _percent(time: Array, seconds: Array, processors: float) -> Array:
    """Return the share of all processors over `CPU_SECONDS` before each sample."""
    import numpy as np

    seconds = _known(seconds)
    if len(time) < 2:
        return np.zeros(len(time))
    before = np.maximum(np.searchsorted(time, time - CPU_SECONDS, "right") - 1, 0)
    after = np.arange(len(time))
    after[0], before[0] = min(len(time) - 1, int(np.searchsorted(time, time[0] + CPU_SECONDS))), 0
    span = np.maximum(time[after] - time[before], 1e-9)
    share: Array = np.clip(100 * (seconds[after] - seconds[before]) / span / processors, 0, 100)
    return share


def _rate(time: Array, total: Array) -> Array:
    import numpy as np

    if len(time) < 2:
        return np.zeros(len(time))
    steps = np.maximum(np.diff(total), 0) / np.maximum(np.diff(time), 1e-9)
    rate: Array = np.concatenate([[0.0], steps])
    return rate


def _peak(run: RecordedRun, chosen: Selection, time: Array, rss: Array) -> tuple[float, float | None]:
    """Return the largest memory and its time in seconds since the start of the run."""
    if not len(time):
        return 0.0, None
    largest = int(rss.argmax())
    best, at = float(rss[largest]), float(time[largest])

    def moment(start: float, end: float) -> float:
        return at if start <= at <= end else (start + end) / 2

    candidates = []
    if chosen.own_peak is not None:
        size, began, ended, *_ = chosen.own_peak
        candidates.append((float(size), moment(began - run.started, ended - run.started)))
    if (
        chosen.owner is None
        and run.peaks.tree is not None
        and run.peaks.tree.certainty is not Certainty.CENSORED
    ):
        candidates.append(
            (float(run.peaks.tree.bytes), at if run.peaks.tree.at is None else run.peaks.tree.at)
        )
    phases = _operations(run, chosen)
    candidates += [
        (float(phase.operation.peak.bytes), moment(phase.start, phase.end))
        for phase in phases
        if phase.operation.peak is not None and phase.operation.peak.certainty is not Certainty.CENSORED
    ]
    for value, time_of_value in candidates:
        if value > best:
            best, at = value, time_of_value
    return best, _within_its_phase(phases, best, at)


def _within_its_phase(phases: Sequence[OperationFigures], peak: float, at: float) -> float:
    """Move the time of the peak into the phase with that peak; a sample's time is only known to one interval."""
    peaks = [(phase.operation.peak.bytes, phase) for phase in phases if phase.operation.peak is not None]
    largest, phase = max(peaks, key=lambda pair: pair[0], default=(0, None))
    if phase is None or largest < _SAME * peak:
        return at
    return min(max(at, phase.start), phase.end - 1e-6)


def _operations(run: RecordedRun, chosen: Selection) -> list[OperationFigures]:
    if chosen.owner is None:
        outermost = (figures for figures in run.operations if figures.depth == 0)
        return [figures for figures in outermost if UNMARKED not in figures.operation.attributes]
    return [figures for figures in run.operations if figures.operation.attributes.get(OWNER) == chosen.owner]


def _phases(run: RecordedRun, chosen: Selection, origin: float) -> list[Phase]:
    phases = []
    for figures in _operations(run, chosen):
        # An operation that was open when its program died lasted until then.
        is_open = figures.operation.status == "open" and run.state == "running"
        phases.append(
            Phase(
                figures.operation.name,
                figures.start - origin,
                None if is_open else figures.seconds,
                chosen.deltas.get(str(figures.operation.id), figures.delta_bytes),
                _moved_bytes(run, figures, "read"),
                _moved_bytes(run, figures, "write"),
            )
        )
    completed = chosen.completed - run.started if chosen.completed is not None else None
    if completed is None and chosen.owner is None and phases and run.state != "running":
        completed = run.seconds
    if completed is not None:
        phases.append(Phase(COMPLETION, completed - origin, end_mark=True))
    return phases


def _moved_bytes(run: RecordedRun, figures: OperationFigures, way: str) -> float:
    """Return the bytes that the tree read or wrote in an operation.

    The figure of the operation's process is exact and includes the children that it waited for. Only the samples include
    children that went on. They give a lower bound (samples inside the operation) and an upper bound (samples around it):

        sample -- mark - sample -- sample - mark -- sample
                         | lower bound |
        | upper bound                                    |

    Between the bounds, the operation's figure is the truth. Example: the program writes 50 MB and sets the mark 20 ms after
    the last sample. The next phase writes nothing: 0 to 50 MB by the samples, and 0 by the operation's figure.
    """
    import numpy as np

    field = f"{way}_chars"
    own = figures.operation.totals.get(field)
    samples = run.samples([FIELDS[field][0]])
    counter = samples.field(field)
    there = ~np.isnan(counter)
    times, values = samples.time[there], counter[there]
    if not len(times):
        return own or 0.0

    def level(index: int) -> float:
        return float(values[min(max(index, 0), len(values) - 1)])

    before, after = (int(np.searchsorted(times, moment)) for moment in (figures.start, figures.end))
    least = max(0.0, level(after - 1) - level(before)) if after - 1 > before else 0.0
    most = max(least, level(after) - level(before - 1))
    if own is None:
        return figures.totals.get(f"tree_{field}", 0.0)
    return min(max(own, least), most)

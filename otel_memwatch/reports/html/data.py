"""Data for the page's script as one JSON object: curves, operations, processes. Bytes and seconds; `null`: unknown.

Long columns are whole numbers, each the difference from the one before. This takes a third of the size and reads fast.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.processes import processes_data
from otel_memwatch.run.curves import LEAST, MOST, NEEDED, Curve, most_likely
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, shorten
from otel_memwatch.truth.stalls import CONTENTION_WORTH_NAMING, WORTH_NAMING, is_worth_naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.curves import DrawnCurves

_GAP = 3.0
"""Sampling intervals without a sample that interrupt a curve. One missed sample is no gap."""

_CPU, _DISK, _CALLS = (
    catalog.MEMWATCH_TREE_CPU_TIME,
    catalog.MEMWATCH_TREE_DISK_IO,
    catalog.MEMWATCH_TREE_SYSCALL_IO,
)
_DEVICES = 16
"""Most devices to draw."""
_IDLE_CORES = 0.005
"""Least average cores for a CPU chart."""
_MOVED = 8 << 20
"""Least total bytes for an I/O chart."""


def page_data(run: RecordedRun) -> dict[str, Any]:
    """Return the object. The script that reads it describes its keys."""
    curves = run.curves
    limit = phrases.limit(run)
    # Gaps of the record: the next bucket, and the ms at which it begins.
    longest = max(_GAP * run.longest_interval, 2 * curves.step)
    holes = [
        [index, round(curves.first[index] * 1000)]
        for index in range(1, len(curves.last))
        if curves.first[index] - curves.last[index - 1] > longest
    ]
    # Start, end and the shares of memory, CPU limit and contention of each slow period; none if the run was not slow.
    slow = is_worth_naming(run.stalls.largest, run.seconds)
    contended = (run.stalls.contention or 0.0) >= CONTENTION_WORTH_NAMING
    periods = [
        [period.start, period.end, period.memory * slow, period.cpu * slow, period.contention * contended]
        for period in run.stalls.periods
    ]
    return {
        "seconds": run.seconds,
        "interval": run.interval,
        "step": curves.step,
        "buckets": {"ends": steps(curves.last, 0.001), "holes": holes},
        "memory": _memory(run, curves),
        "peak": peak_json(run.peaks.tree),
        "limit": None if limit is None else {"bytes": limit.bytes, "whose": limit.owner},
        "stalls": [one for one in periods if max(one[2:]) >= WORTH_NAMING],
        "kills": _rises(curves, catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, **_KILL),
        "cpu": _cpu(run, curves),
        "io": _io(run, curves),
        "gpus": _gpus(run, curves),
        "operations": _operations(run),
        "processes": processes_data(run, curves),
    }


def _operations(run: RecordedRun) -> dict[str, Any] | None:
    if not run.marked:
        return None
    from otel_memwatch.reports.html.operations import operations_data

    return operations_data(run)


_KILL = {"memwatch_cgroup_memory_event_type": "oom_kill"}


def peak_json(peak: Peak | None) -> dict[str, Any] | None:
    """Return a peak as in the JSON report, without process and operation."""
    if peak is None:
        return None
    return {
        "bytes": peak.bytes,
        "certainty": peak.certainty.value,
        "low": peak.low,
        "high": peak.high,
        "at": peak.at,
        "how": clean(peak.how),
    }


def steps(values: Iterable[float], unit: float = 1) -> list[int | None]:
    """Return whole multiples of `unit`, each as its difference from the last known one; `None` for NaN."""
    before = 0
    found: list[int | None] = []
    for value in values:
        if value != value:  # noqa: PLR0124 - NaN
            found.append(None)
            continue
        whole = round(value / unit)
        found.append(whole - before)
        before = whole
    return found


def column(values: Sequence[float]) -> dict[str, Any]:
    """Return a column of bytes, in KiB if that is exact."""
    unit = 1 if any(value % 1024 for value in values if value == value) else 1024  # noqa: PLR0124 - NaN
    return {"unit": unit, "steps": steps(values, unit)}


def _memory(run: RecordedRun, curves: DrawnCurves) -> list[dict[str, Any]]:
    """Return the memory curves, the curve of needed memory first."""
    needed = curves.curves.get((NEEDED, ()))
    tree, main = curves.find(catalog.MEMWATCH_TREE_MEMORY_USAGE), curves.find(catalog.PROCESS_MEMORY_USAGE)
    pss, group = (
        curves.find(catalog.MEMWATCH_TREE_MEMORY_PSS),
        curves.find(catalog.MEMWATCH_CGROUP_MEMORY_USAGE),
    )
    alone = run.totals.get("processes") == 1 and not run.totals.get("unseen_processes")
    shown = []
    if needed is not None:
        shown.append(_needed(run, curves, needed))
    elif alone and main is not None:
        shown.append(
            _line(
                "needed",
                "needed",
                "Resident memory of the only process at each sample. The peak is its high-water mark.",
                main,
            )
        )
        main = tree = None
    sums = "Sum of the resident sizes of all processes. Shared pages are counted in each process."
    if tree is not None:
        shown.append(_line("sum", "resident sizes added up", sums, tree, first=not shown))
    if main is not None and not (alone and needed is None):
        shown.append(_line("main", "main process", "Resident memory of the command's main process.", main))
    if pss is not None:
        words = (
            "Proportional sizes: a shared page is divided among the processes that share it. Sampled rarely."
        )
        shown.append(_line("pss", "shared pages once (PSS)", words, pss))
    if group is not None and run.fields.own_cgroup:
        words = "All memory charged to the run's cgroup, which the OOM killer compares with the limit."
        shown.append(_line("group", "with page cache", words, group))
    if shown:
        shown[0]["shown"] = True
    return shown


def _needed(run: RecordedRun, curves: DrawnCurves, needed: Curve) -> dict[str, Any]:
    """Return needed memory at samples, with the bounds between them."""
    least, most = curves.curves.get((LEAST, ())), curves.curves.get((MOST, ()))
    if not run.fields.own_cgroup:
        words = "Private and shared memory of the processes at each sample, without files: best estimate."
        peak = run.peaks.tree
        needed = _capped(needed, most_likely(peak))
        if most is not None and peak is not None and peak.high is not None:
            most = _capped(most, peak.high)
        line = _line("needed", "needed", words, needed)
        return line if most is None else {**line, "most": column(most.high)}
    words = "Memory charged to the run's cgroup, less page cache"
    if least is None or most is None:
        return _line("needed", "needed", f"{words}, at each sample.", needed)
    # If a window has no evidence, use the samples at its ends.
    top = [high if not low > high else low for high, low in zip(needed.high, least.high, strict=True)]
    line = _line("needed", "needed", f"{words}. High-water marks cover the time between samples.", needed)
    return {**line, "high": column(top), "most": column(most.high)}


def _capped(curve: Curve, top: float) -> Curve:
    low, high = ([min(value, top) for value in values] for values in curve)
    return Curve(low, high)


def _line(name: str, label: str, how: str, curve: Curve, *, first: bool = False) -> dict[str, Any]:
    line = {"id": name, "label": label, "how": how, "shown": first, "high": column(curve.high)}
    if any(low < high for low, high in zip(curve.low, curve.high, strict=True)):
        line["low"] = column(curve.low)
    return line


def _rises(curves: DrawnCurves, metric: str, **attributes: str) -> list[float]:
    """Return the times at which a counter had risen."""
    counter = curves.find(metric, **attributes)
    if counter is None:
        return []
    found, before = [], None
    for time, value in zip(curves.last, counter.high, strict=True):
        if before is not None and value > before:
            found.append(round(time, 3))
        before = value if value == value else before  # noqa: PLR0124 - NaN
    return found[:50]


def _cpu(run: RecordedRun, curves: DrawnCurves) -> dict[str, Any] | None:
    """Return counters of CPU time in ms, which the script converts to cores; `None` if hardly any was used."""
    if not run.totals.get("cpu_seconds") or (run.cores is not None and run.cores < _IDLE_CORES):
        return None
    modes = {mode: curves.find(_CPU, cpu_mode=mode) for mode in ("user", "system")}
    counters = {mode: steps(counter.high, 0.001) for mode, counter in modes.items() if counter is not None}
    return {"counters": counters, "cpus": run.host.get("cpus")} if counters else None


def _io(run: RecordedRun, curves: DrawnCurves) -> dict[str, Any] | None:
    """Return counters of bytes; `None` for little I/O."""
    names = ("read_bytes", "write_bytes", "read_chars", "write_chars")
    if sum(run.totals.get(name) or 0 for name in names) < _MOVED:
        return None
    found = {
        f"{where}_{way}": column(counter.high)
        for metric, where in ((_DISK, "disk"), (_CALLS, "calls"))
        for way in ("read", "write")
        if (counter := curves.find(metric, disk_io_direction=way)) is not None
        and (run.totals.get(f"{way}_{'bytes' if where == 'disk' else 'chars'}") or 0) >= _MOVED / 64
    }
    return found or None


def _gpus(run: RecordedRun, curves: DrawnCurves) -> list[dict[str, Any]]:
    """Return memory and utilization of each device."""
    keys = [
        key
        for key in curves.curves
        if key[0] in (catalog.HW_GPU_MEMORY_USAGE, catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE)
    ]
    devices = list(dict.fromkeys(dict(key[1]).get("hw.id", "") for key in keys))
    shown = []
    for number, device in enumerate(devices[:_DEVICES]):
        found = {
            name: curves.find(metric, hw_id=device)
            for name, metric in (
                ("used", catalog.HW_GPU_MEMORY_USAGE),
                ("held", catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE),
                ("limit", catalog.HW_GPU_MEMORY_LIMIT),
                ("busy", catalog.HW_GPU_UTILIZATION),
            )
        }
        name = next(
            (dict(key[1]).get("hw.name", "") for key in keys if dict(key[1]).get("hw.id", "") == device), ""
        )
        limits = [] if found["limit"] is None else found["limit"].high
        shown.append(
            {
                "label": " ".join(word for word in (f"GPU {number}", shorten(name, 32)) if word),
                "id": clean(device),
                "peak": peak_json(run.peaks.gpu.get(device)),
                "used": None if found["used"] is None else column(found["used"].high),
                "held": None if found["held"] is None else column(found["held"].high),
                "limit": max((value for value in limits if value == value), default=None),  # noqa: PLR0124 - NaN
                "busy": None if found["busy"] is None else steps(found["busy"].high, 0.001),
            }
        )
    return shown

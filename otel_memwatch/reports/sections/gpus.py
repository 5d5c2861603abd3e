"""GPUs of a run: memory of each device, the run's share of it, and allocators by operation."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.model import Certainty
from otel_memwatch.reports import gpu_phrases
from otel_memwatch.reports.pages import Columns
from otel_memwatch.run.gpu import by_name
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import certainty, clean, count, duration, peak_figure, shorten, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.record.run_info_schema import GpuFields
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import OperationFigures, RecordedRun
    from otel_memwatch.run.gpu import RepeatedUse

METRICS = (
    catalog.HW_GPU_MEMORY_LIMIT,
    catalog.HW_GPU_UTILIZATION,
    catalog.HW_ENERGY,
    catalog.HW_ERRORS,
    catalog.MEMWATCH_GPU_THROTTLED,
    catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_GPU_MEMORY_SYSTEM,
    catalog.MEMWATCH_PROCESS_GPU_MEMORY_PEAK,
)
_SHOWN = 100
"""Rows in the table of operations."""
_EXACT = ("torch.cuda", "torch.xpu", "tensorflow")
"""Allocators with peaks that `--exact-gpu` makes exact."""
_PROCESSES = 5


def gpus(run: RecordedRun, page: Page) -> None:
    """Write the sections; nothing for a run without a GPU."""
    recorded = [device for device in run.fields.gpus if device.recorded]
    if recorded:
        page.section(f"GPUs ({len(recorded)})")
        samples = run.samples(METRICS)
        for device in recorded:
            page.fact(
                clean(device.name or "GPU"), clean(f"{device.id}, {device.pci}" if device.pci else device.id)
            )
            limit = _largest(samples, catalog.HW_GPU_MEMORY_LIMIT, device.id)
            peak = run.peaks.gpu.get(device.id)
            if peak is not None:
                of = f" of {size(limit)}" if limit else ""
                page.fact("", f"{size(peak.bytes)}{of} peak of all programs")
            page.fact("", gpu_phrases.reserved_in_advance(run.peaks, device.id))
            for text in (*_tree(samples, device), *_meanwhile(samples, device)):
                page.fact("", text)
    many = run.too_many_operations
    listed = run.operation_digest.on_devices if many else run.operations
    operations = [figures for figures in listed if figures.operation.gpu]
    if operations:
        _operations(sorted(operations, key=lambda one: one.start), page, counted=not many)


def _tree(samples: Samples, device: GpuFields) -> Iterator[str]:
    """Yield the run's share of the device's memory."""
    key, exact = device.id, device.accounted
    usage = _largest(samples, catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE, key)
    system = _largest(samples, catalog.MEMWATCH_TREE_GPU_MEMORY_SYSTEM, key)
    if usage is not None:
        more = f", plus {size(system)} of system memory" if system else ""
        yield f"{size(usage)} (sampled) used by this run{more}"
    elif device.processes:
        yield clean(device.processes)
    ranked = sorted({**device.held, **exact}.items(), key=lambda item: -item[1])
    for pid, held in ranked[:_PROCESSES]:
        yield f"pid {pid}: {size(held)} " + ("(exact, driver's accounting)" if pid in exact else "(sampled)")
    if len(ranked) > _PROCESSES:
        yield f"{count(len(ranked) - _PROCESSES, 'more process', 'more processes')}"


def _meanwhile(samples: Samples, device: GpuFields) -> Iterator[str]:
    """Yield utilization, energy and errors."""
    key = device.id
    busy = _known(samples, catalog.HW_GPU_UTILIZATION, key)
    energy = _rise(samples, catalog.HW_ENERGY, key)
    parts = [f"{100 * sum(busy) / len(busy):.0f} % busy on average"] if busy else []
    if energy is not None:
        parts.append(f"{energy:.0f} J used")
    if parts:
        yield ", ".join(parts)
    held_down = [
        reason
        for reason in ("power", "thermal", "hardware", "sync")
        if any(_known(samples, catalog.MEMWATCH_GPU_THROTTLED, key, ("memwatch.gpu.throttle.reason", reason)))
    ]
    if held_down:
        yield f"clocks throttled: {', '.join(held_down)}"
    for kind, words in (
        ("ecc_uncorrected", "uncorrected memory error"),
        ("ecc_corrected", "corrected memory error"),
    ):
        number = _rise(samples, catalog.HW_ERRORS, key, ("error.type", kind))
        if number:
            yield count(number, words)
    if device.xid:
        yield f"XID errors reported by the driver: {clean(', '.join(device.xid[:10]))}"
    if device.trouble:
        yield clean(device.trouble)
    for question, (seconds, error) in device.unknown.items():
        yield clean(f"{question} unknown for {duration(seconds)}: {error}")


def _known(samples: Samples, metric: str, key: str, *more: tuple[str, str]) -> list[float]:
    column = next(
        (c for c in samples.columns if c.metric == metric and {("hw.id", key), *more} <= set(c.attributes)),
        None,
    )
    return [] if column is None else [float(value) for value in samples.known(column)[1]]


def _largest(samples: Samples, metric: str, key: str) -> float | None:
    return max(_known(samples, metric, key), default=None)


def _rise(samples: Samples, metric: str, key: str, *more: tuple[str, str]) -> float | None:
    """Return the increase of a counter over the run; `None` if it has fewer than two values."""
    values = _known(samples, metric, key, *more)
    return values[-1] - values[0] if len(values) > 1 else None


_COLUMNS = Columns(
    ("start", "operation", "device", "in tensors", "", "reserved", "unused at end", ""), "rllrlrrl"
)


def _operations(listed: list[OperationFigures], page: Page, *, counted: bool) -> None:
    page.section("GPU memory of operations")
    found = by_name(listed)
    page.table([_row(use, counted=counted) for use in found[:_SHOWN]], _COLUMNS)
    page.gap()
    if len(found) > _SHOWN:
        page.paragraph(f"{count(len(found) - _SHOWN, 'more name')} (all: --json).")
    page.paragraph(
        "in tensors: memory that the program's GPU library handed out. reserved: memory that it took from the device, "
        "including its cache. Other memory on the device is in neither. Repeats of a name are one row, with the largest "
        "values."
    )
    if any(
        use.figures.peak.certainty is not Certainty.EXACT and use.figures.allocator in _EXACT for use in found
    ):
        page.paragraph(
            "A range ends at the program's high-water mark if the operation did not exceed it. wrap --exact-gpu "
            "(OTEL_MEMWATCH_EXACT_GPU=1) resets the mark at each operation: all peaks are then exact, but the program "
            "reads smaller values from max_memory_allocated()."
        )


def _row(use: RepeatedUse, *, counted: bool) -> tuple[str, ...]:
    first, last, figures = use.first.operation.name, use.last.operation.name, use.figures
    name = shorten(first, 40) if first == last else f"{shorten(first, 20)} ... {shorten(last, 20)}"
    remarks = (
        count(figures.ooms, "allocation failed", "allocations failed") if figures.ooms else "",
        f"{figures.retries} retried after releasing the cache" if figures.retries else "",
    )
    return (
        duration(use.first.start),
        "  " * min(use.first.depth, 8)
        + name
        + (f" ({use.times} times)" if counted and use.times > 1 else ""),
        shorten(figures.device, 24),
        peak_figure(figures.peak),
        certainty(figures.peak),
        "-" if figures.reserved_peak is None else size(figures.reserved_peak),
        "-" if figures.fragmentation is None else size(figures.fragmentation),
        ", ".join(remark for remark in remarks if remark),
    )

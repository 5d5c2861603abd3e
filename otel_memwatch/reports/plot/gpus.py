"""GPU panels: memory and utilization of each device."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.series import draw_line, line
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from otel_memwatch.model import Column
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.reports.plot.series import View

_USAGE, _LIMIT, _BUSY = catalog.HW_GPU_MEMORY_USAGE, catalog.HW_GPU_MEMORY_LIMIT, catalog.HW_GPU_UTILIZATION
_TREE = catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE
GPU_METRICS = (_USAGE, _LIMIT, _BUSY, _TREE)

_NAMED = 8
"""Devices that the legend names."""
_DRAWN = 256
"""Most devices to draw, including MIG instances: more than a machine has."""
_MODEL_LETTERS = 32
_HEADROOM = 1.12
_FEW = 40
"""Number of values below which each is drawn as a point."""


def gpu_panels(samples: Samples) -> list[Callable[[Axes, View], int]]:
    """Return the panels for recorded metrics; none without a GPU."""
    panels: list[Callable[[Axes, View], int]] = []
    if samples.find(_USAGE) or samples.find(_TREE):
        panels.append(_draw_memory)
    if samples.find(_BUSY):
        panels.append(_draw_utilization)
    return panels


def _label(column: Column, index: int, remark: str) -> str | None:
    """Return the label of a device: number, model, and the beginning of its id; `None` after the first devices."""
    if index >= _NAMED:
        return None
    attributes = dict(column.attributes)
    identity = attributes.get("hw.id", "")
    words = [
        f"GPU {index}",
        shorten(attributes.get("hw.name", ""), _MODEL_LETTERS),
        shorten(identity.removeprefix("GPU-"), 11),
    ]
    return style.lettering(" ".join(word for word in words if word)) + remark


def _draw_memory(axes: Axes, view: View) -> int:
    samples = view.samples
    used, held = samples.find(_USAGE)[:_DRAWN], samples.find(_TREE)[:_DRAWN]
    devices = sorted({_device(c) for c in (*used, *held)})
    known = {c: line(samples, c, view.interval) for c in (*used, *held)}
    most = max(
        (found for found in (one.maximum() for one in known.values()) if found is not None), default=0.0
    )
    limits = [samples.known(c)[1] for c in samples.find(_LIMIT)[:_DRAWN]]
    limit = max((float(values.max()) for values in limits if len(values)), default=0.0)
    peaks = {device: peak for device, peak in view.run.peaks.gpu.items() if device in devices}
    most = max([most, *(peak.bytes for peak in peaks.values())])
    shown = limit if 0 < limit <= 3 * most else 0.0
    scale, unit = view.byte_scale, view.byte_unit
    style.plain_axes(axes, "GPU memory", unit)
    for column, one in known.items():
        index = devices.index(_device(column))
        whole = column.metric == _USAGE
        draw_line(
            axes, one, view.scale, scale, color=_colour(index), linewidth=1.5 if whole else 1.0,
            linestyle="-" if whole else ":", marker="o" if len(one.time) < _FEW else "", markersize=2.5,
            label=_label(column, index, "" if whole else ", this run"),
        )  # fmt: skip
    for device, peak in peaks.items():
        if peak.at is not None:
            axes.plot(
                [peak.at / view.scale], [peak.bytes / scale], marker="o", markersize=5, linestyle="",
                color=_colour(devices.index(device)), markeredgecolor=style.INK, markeredgewidth=0.8, zorder=5,
            )  # fmt: skip
    if shown:
        axes.axhline(
            shown / scale,
            color=style.VERMILION,
            marker="",
            linewidth=1.0,
            linestyle=(0, (5, 3)),
            label="device memory",
        )
    axes.set_ylim(0, max(most, shown, scale / 10) / scale * _HEADROOM)
    return style.legend(axes)


def _draw_utilization(axes: Axes, view: View) -> int:
    style.plain_axes(axes, "GPU utilization", "%")
    for index, column in enumerate(view.samples.find(_BUSY)[:_DRAWN]):
        one = line(view.samples, column, view.interval)
        draw_line(
            axes, one, view.scale, 0.01, color=_colour(index), linewidth=1.1, linestyle="-",
            marker="o" if len(one.time) < _FEW else "", markersize=2.5,
        )  # fmt: skip
    axes.set_ylim(0, 105)
    return 1


def _device(column: Column) -> str:
    return dict(column.attributes).get("hw.id", "")


def _colour(index: int) -> str:
    return style.DEVICES[index % len(style.DEVICES)]

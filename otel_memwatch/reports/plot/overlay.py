"""Several runs in one picture: needed memory over time, each from its start."""

from __future__ import annotations

import numpy as np

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.peak import Extent, peak_extent
from otel_memwatch.reports.plot.series import Line, draw_line, line_of, time_unit
from otel_memwatch.run.curves import most_likely, needed_at_samples
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, duration, size_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_RESIDENT = catalog.MEMWATCH_TREE_MEMORY_USAGE
_NEEDED = (
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,
)
_WIDTH, _HEIGHT, _DPI = 12.0, 5.4, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.42, 0.5, 0.56
_ROW = 0.2
_NAME = 60
_HEADROOM = 1.06


def overlay(runs: Sequence[RecordedRun], options: Options) -> Figure:
    """Return one panel with a curve for each run and its peak as a point; the legend above has the figures."""
    begin = max(0.0, options.get("begin") or 0.0)
    longest = max(*(run.seconds for run in runs), 1e-3)
    end = min(longest, options.get("end") or longest)
    width, height = options.get("size") or (_WIDTH, None)
    above = _TOP + _ROW * len(runs)
    height = max(2.0, height or _HEIGHT + _ROW * len(runs))
    figure = style.new_figure(width, height, options.get("dpi") or _DPI)
    axes = figure.add_axes(
        (
            _LEFT / width,
            _BOTTOM / height,
            (width - _LEFT - _RIGHT) / width,
            (height - above - _BOTTOM) / height,
        )
    )
    lines = [_needed(run, begin, end) for run in runs]
    peaks = [run.peaks.tree for run in runs]
    most = max(
        [float(peak.high or peak.bytes) for peak in peaks if peak is not None]
        + [line.maximum() or 0.0 for line, _ in lines],
        default=0.0,
    )
    scale, unit = size_scale(max(most, 1024.0))
    time_scale, time_name = time_unit(end - begin)
    style.plain_axes(axes, "Memory", unit, "points are peaks")
    axes.set_xlim(begin / time_scale, max(end, begin + 1e-3) / time_scale)
    axes.set_ylim(0, max(most, 1024.0) / scale * _HEADROOM)
    names = [phrases.process_name(None, run.command, _NAME) for run in runs]
    if len(set(names)) < len(names):  # runs of one command
        names = [clean(run.id)[:_NAME] for run in runs]
    for index, (run, (line, needed), peak) in enumerate(zip(runs, lines, peaks, strict=True)):
        extent = peak_extent(peak, (scale, unit))
        words = "unknown" if extent is None else extent.words
        colour = style.DEVICES[index % len(style.DEVICES)]
        dashes = "-" if index < len(style.DEVICES) else "--"
        remark = "" if needed else ", resident sizes drawn"
        draw_line(
            axes, line, time_scale, scale, color=colour, linewidth=1.5, linestyle=dashes, marker="",
            label=style.lettering(f"{names[index]}: {words}, {duration(run.seconds)}{remark}"),
        )  # fmt: skip
        if extent is not None and extent.at is not None and begin <= extent.at <= end:
            _join(axes, line, extent, (time_scale, scale), colour)
            axes.plot(
                [extent.at / time_scale], [extent.high / scale], marker="o", markersize=6, linestyle="", color=colour,
                markeredgecolor=style.INK, markeredgewidth=0.8, zorder=6,
            )  # fmt: skip
    style.time_axis(axes, time_name)
    figure.text(
        _LEFT / width, 1 - 0.12 / height, style.lettering(clean(options.get("title") or f"{len(runs)} runs")),
        va="top", fontproperties=style.font(style.LARGE, bold=True), color=style.INK,
    )  # fmt: skip
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, prop=style.font(), labelcolor=style.INK,
        borderaxespad=0.1, borderpad=0.1, handlelength=1.6, handletextpad=0.5,
    )  # fmt: skip
    if options.get("dark"):
        style.darken(figure)
    return figure


def _join(axes: Axes, line: Line, extent: Extent, scales: tuple[float, float], colour: str) -> None:
    """Join the point of a peak between two samples to its curve."""
    known = ~np.isnan(line.value)
    if extent.at is None or not known.any():
        return
    curve = float(np.interp(extent.at, line.time[known], line.value[known]))
    at, (time_scale, scale) = extent.at, scales
    axes.plot(
        [at / time_scale] * 2, [curve / scale, extent.high / scale], color=colour, linewidth=0.9, linestyle=":", marker="",
        zorder=2,
    )  # fmt: skip


def _needed(run: RecordedRun, begin: float, end: float) -> tuple[Line, bool]:
    """Return needed memory over time and true, or the sum of resident sizes and false."""
    samples = run.samples([_RESIDENT, *_NEEDED]).between(begin, end)
    in_group = run.fields.own_cgroup is not None
    values = needed_at_samples(samples, in_group=in_group)
    needed = not bool(np.isnan(values).all())
    if not needed:
        values = samples.column(_RESIDENT)
    elif not in_group:
        values = np.minimum(values, most_likely(run.peaks.tree))
    return line_of(samples.time, values, 0.0, run.longest_interval), needed

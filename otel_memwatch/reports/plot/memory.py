"""Memory panel: needed or resident memory over time, memory charged to the cgroup, limit, and peak."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.peak import Extent, draw_peak, peak_extent
from otel_memwatch.reports.plot.series import Line, draw_line, line, line_of
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.curves import most_likely, needed_at_samples
from otel_memwatch.run.sample_series import TreeSeries
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import size, size_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from otel_memwatch.model import Column
    from otel_memwatch.reports.plot.series import View

_TREE, _MAIN = catalog.MEMWATCH_TREE_MEMORY_USAGE, catalog.PROCESS_MEMORY_USAGE
_PSS = catalog.MEMWATCH_TREE_MEMORY_PSS
_GROUP, _WORKING_SET = catalog.MEMWATCH_CGROUP_MEMORY_USAGE, catalog.MEMWATCH_CGROUP_MEMORY_WORKING_SET
_FILE = catalog.MEMWATCH_CGROUP_MEMORY_FILE
_EVENTS, _KILL = catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, {"memwatch.cgroup.memory.event.type": "oom_kill"}

_ESTIMATES = catalog.MEMWATCH_TREE_MEMORY_NEEDED, catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW

MEMORY_METRICS = (_TREE, _MAIN, _PSS, _GROUP, _WORKING_SET, _FILE, _EVENTS, *_ESTIMATES)
WINDOW_METRICS = METRICS
"""Further metrics for the windows between samples, if these are drawn."""

NEAR = 3.0
"""Largest ratio to the peak for which a limit or the cgroup's memory is drawn; above it the curve would be flat."""
_HEADROOM = 1.17
"""Height of the panel relative to its largest value, with room for the peak's label."""
_LITTLE_ABOVE = 1.5
"""Largest ratio to the scale for which a secondary curve extends it."""
_ABOVE = 1.05
_ALIKE = 0.03
"""Mean distance of two curves that count as the same, relative to the largest value."""
_NEEDED = "needed"
_FAINT_BLUE = "#9CC3DD"
STEPS = 20_000
"""Most samples for which the windows between them are drawn."""
_FEW = 80
"""Most samples that are drawn as points."""


class _Curve(NamedTuple):
    line: Line
    label: str
    colour: str
    width: float
    dashes: str
    filled: bool = False
    points: bool = False
    marked: bool = True
    """Draw the samples as points if they are few."""
    aside: bool = False
    """A secondary curve: if it is far above the others, it does not set the scale and is clipped by it."""


def draw_memory(axes: Axes, view: View) -> int:
    """Draw the panel. Return the number of rows of its legend."""
    peak = view.run.peaks.tree
    extent = peak_extent(peak, (view.byte_scale, view.byte_unit))
    if extent is not None and extent.at is not None and not view.begin <= extent.at <= view.end:
        extent = None
    curves = _curves(view, extent)
    most = max(
        [c.line.maximum() or 0.0 for c in curves if not c.aside] + ([extent.high] if extent else []),
        default=0.0,
    )
    group, absent = _group_curves(view, most, curves)
    limit = phrases.limit(view.run)
    near = limit is not None and most > 0 and limit.bytes <= NEAR * most
    if not near and any(curve.filled and curve.label.startswith(_NEEDED) for curve in curves):
        # Omit cache: without a limit nearby, the kernel does not reclaim it. Of another group, other programs use most.
        group = []
        absent = absent if view.run.fields.own_cgroup else []
    if near:
        # The OOM killer compares this curve with the limit, so let it set the scale.
        most = max([most] + [c.line.maximum() or 0.0 for c in group])
    curves += group
    top = max(most, float(limit.bytes) if limit and near else 0.0, 1024.0)
    aside = [curve.line.maximum() or 0.0 for curve in curves if curve.aside]
    top = max(one for one in (top, *aside) if one <= _LITTLE_ABOVE * top)
    scale, unit = view.byte_scale, view.byte_unit
    if limit is not None and not near and limit.whose != "machine":
        absent.append(f"limit {size(limit.bytes)}")
    remark = f"off the scale: {', '.join(absent)}" if absent else ""
    style.plain_axes(axes, "Memory", unit, remark)
    axes.set_ylim(0, top / scale * _HEADROOM)
    for curve in curves:
        _draw(axes, curve, view, scale, top)
    if limit is not None and near:
        words = f"{'memory of the machine' if limit.whose == 'machine' else 'limit'} {size_in(limit.bytes, scale, unit)}"
        axes.axhline(
            limit.bytes / scale,
            color=style.VERMILION,
            marker="",
            linewidth=1.3,
            linestyle=(0, (5, 3)),
            label=words,
            zorder=2,
        )
    _draw_kills(axes, view)
    if extent is not None:
        draw_peak(axes, view, extent, scale=scale, curve=_curve_at(curves, extent), top=top)
    if not curves:
        style.write_into(axes, "no samples were recorded")
    return style.legend(axes, len(remark))


def _curves(view: View, extent: Extent | None) -> list[_Curve]:
    """Return the curve of needed memory or its best substitute, the tree's resident sizes, and the main process."""
    curves = []
    tree, main, needed = _line(view, _TREE), _line(view, _MAIN), _needed(view)
    if needed is not None:
        curves.append(
            _Curve(needed, f"{_NEEDED}: each page once, no cache", style.GREEN, 1.8, "-", filled=True)
        )
        spikes = _spikes(view, needed)
        if spikes is not None:
            label = "spike between samples, at least"
            curves.append(_Curve(spikes, label, style.GREEN, 0.8, "-", marked=False))
    if tree is not None:
        # Explain a sum above needed memory: every forked process counts its shared pages.
        above = (
            extent is not None and not extent.open_above and (tree.maximum() or 0.0) > _ABOVE * extent.high
        )
        label = "all processes (RSS, shared pages repeated)" if above else "all processes (RSS)"
        aside = above or needed is not None
        colour = style.BLUE if not aside else _FAINT_BLUE
        curves.append(_Curve(tree, label, colour, 0.9 if aside else 1.6, "-", filled=not aside, aside=aside))
    if main is not None and not any(other is not None and _same(other, main) for other in (tree, needed)):
        curves.append(_Curve(main, "main process", style.ORANGE, 1.0, "-", aside=needed is not None))
    pss = _line(view, _PSS)
    if pss is not None and needed is None:
        curves.append(_Curve(pss, "shared pages once (PSS)", style.PURPLE, 0.0, "", points=True))
    return curves


def _spikes(view: View, needed: Line) -> Line | None:
    """Return the windows between samples in which certainly more was needed than at both of their samples.

    `None` without such windows, and for long runs. In these a spike of one window is as narrow as a line, and the
    points of the curve show it.
    """
    if len(view.samples) > STEPS:
        return None
    conditions = RunConditions.of(view.run.info)
    ends, least = TreeSeries(view.samples, conditions, all_ended=False).windows.certain()
    known = ~np.isnan(needed.value)
    if len(ends) < 2 or not known.any():
        return None
    end, value = np.array(ends) - conditions.started, np.array(least)
    start = np.concatenate(([0.0], end[:-1]))
    before, after = (np.interp(at, needed.time[known], needed.value[known]) for at in (start, end))
    above = value > np.maximum(before, after)
    if not above.any():
        return None
    # The last column interrupts the line.
    times = np.stack((start, start, end, end, end), axis=1)[above].ravel()
    values = np.stack((before, value, value, after, np.full(len(end), np.nan)), axis=1)[above].ravel()
    return Line(times, values, np.zeros(len(values), dtype=bool))


def _needed(view: View) -> Line | None:
    """Return the memory needed at samples; `None` if it is not known at all of them, and without Linux."""
    in_group = view.run.fields.own_cgroup is not None
    if in_group and any(column.period > 0 for column in view.samples.find(_FILE)):
        return None
    values = needed_at_samples(view.samples, in_group=in_group)
    if not in_group:
        values = np.minimum(values, most_likely(view.run.peaks.tree))
    made = line_of(view.samples.time, values, 0.0, view.interval)
    return made if len(made.time) else None


def _group_curves(view: View, most: float, known: list[_Curve]) -> tuple[list[_Curve], list[str]]:
    """Return the cgroup's curves, and words for those that other programs or cache put off the scale."""
    curves, absent = [], []
    rows = [(_GROUP, "cgroup with page cache", style.SOFT, "--")]
    if _needed(view) is None:
        rows.append((_WORKING_SET, "working set", style.GREEN, "-"))
    for metric, label, colour, dashes in rows:
        found = _line(view, metric)
        maximum = found.maximum() if found else None
        if found is None or maximum is None:
            continue
        shown = next((curve.line for curve in known if curve.filled), None)
        if shown is not None and _same(shown, found):
            continue
        if maximum <= NEAR * most or (view.run.fields.own_cgroup and most == 0):
            curves.append(_Curve(found, label, colour, 1.0, dashes, aside=most > 0))
        elif metric == _GROUP:
            absent.append(f"cgroup {size(maximum)}")
    return curves, absent


def _line(view: View, metric: str) -> Line | None:
    found: tuple[Column, ...] = view.samples.find(metric)
    made = line(view.samples, found[0], view.interval) if found else None
    return made if made is not None and len(made.time) else None


def _same(first: Line, second: Line) -> bool:
    """Return whether two lines are alike. One may end with the command, the other with its last child."""
    known, other = ~np.isnan(first.value), ~np.isnan(second.value)
    if not known.any() or not other.any():
        return False
    apart = np.abs(np.interp(second.time[other], first.time[known], first.value[known]) - second.value[other])
    return float(apart.mean()) <= _ALIKE * float(first.value[known].max())


def _draw(axes: Axes, curve: _Curve, view: View, scale: float, top: float) -> None:
    few = len(curve.line.time) <= _FEW and not curve.aside and curve.marked
    marker = "D" if curve.points else "o" if few else ""
    most = curve.line.maximum() or 0.0
    label = curve.label
    if curve.aside and most > _ABOVE * top:
        label += f", up to {size_in(most, view.byte_scale, view.byte_unit)}"
    before = len(axes.lines)
    draw_line(
        axes, curve.line, view.scale, scale, color=curve.colour, linewidth=curve.width, linestyle=curve.dashes,
        marker=marker, markersize=4.0 if curve.points else 2.5, label=label,
    )  # fmt: skip
    if curve.aside:
        ceiling = Rectangle((0, 0), 1, top / scale / axes.get_ylim()[1], transform=axes.transAxes)
        for drawn in axes.lines[before:]:
            drawn.set_clip_path(ceiling)
    if curve.filled:
        time, value = curve.line.time / view.scale, curve.line.value / scale
        axes.fill_between(
            time, value, 0, facecolor=curve.colour, edgecolor="none", alpha=0.11, linewidth=0, zorder=1
        )


def _draw_kills(axes: Axes, view: View) -> None:
    """Mark samples at which the OOM killer had killed another process of the cgroup."""
    found = view.samples.find(_EVENTS, _KILL)
    if not found:
        return
    time, kills = view.samples.known(found[0])
    label: str | None = "OOM kill"
    for at in time[1:][np.diff(kills) > 0][:50]:
        axes.axvline(
            at / view.scale,
            color=style.VERMILION,
            marker="",
            linewidth=1.2,
            linestyle=":",
            label=label,
            zorder=2,
        )
        label = None


def _curve_at(curves: list[_Curve], extent: Extent) -> float | None:
    """Return the value of the first curve nearest to the time of the peak, in bytes."""
    if not curves or extent.at is None:
        return None
    drawn = curves[0].line
    known = ~np.isnan(drawn.value)
    if not known.any():
        return None
    time, value = drawn.time[known], drawn.value[known]
    return float(value[np.argmin(np.abs(time - extent.at))])

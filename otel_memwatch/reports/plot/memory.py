"""The memory panel: resident memory over time, what the control group was charged, the limit, and the peak."""

from __future__ import annotations

import numpy as np

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import size, size_scale
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.peak import Extent, draw_peak, peak_extent
from otel_memwatch.reports.plot.series import Line, draw_line, line, line_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from otel_memwatch.model import Column
    from otel_memwatch.reports.plot.series import View

_TREE, _MAIN = catalog.MEMWATCH_TREE_MEMORY_USAGE, catalog.PROCESS_MEMORY_USAGE
_PSS = catalog.MEMWATCH_TREE_MEMORY_PSS
_GROUP, _WORKING_SET = catalog.MEMWATCH_CGROUP_MEMORY_USAGE, catalog.MEMWATCH_CGROUP_MEMORY_WORKING_SET
_FILE = catalog.MEMWATCH_CGROUP_MEMORY_FILE
_EVENTS, _KILL = catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, {"memwatch.cgroup.memory.event.type": "oom_kill"}

MEMORY_METRICS = (_TREE, _MAIN, _PSS, _GROUP, _WORKING_SET, _FILE, _EVENTS)

NEAR = 3.0
"""Times the peak up to which a limit, or the control group's memory, is drawn: beyond, the curve would be flat."""
_HEADROOM = 1.17
"""Of the panel, above all that is drawn: room for the peak's label."""
_ABOVE = 1.05
_FEW = 80
"""Ticks up to which each is a point."""


class _Curve(NamedTuple):
    line: Line
    label: str
    colour: str
    width: float
    dashes: str
    filled: bool = False
    points: bool = False


def draw_memory(axes: Axes, view: View) -> int:
    """Draws the panel; the number of rows that its legend takes."""
    extent = peak_extent(view.run.peaks.tree)
    curves = _curves(view, extent)
    most = max([c.line.maximum() or 0.0 for c in curves] + ([extent.high] if extent else []), default=0.0)
    group, absent = _group_curves(view, most)
    curves += group
    most = max([most] + [c.line.maximum() or 0.0 for c in group])
    limit = phrases.limit(view.run)
    near = limit is not None and most > 0 and limit.bytes <= NEAR * most
    top = max(most, float(limit.bytes) if limit and near else 0.0, 1024.0)
    scale, unit = size_scale(top)
    if limit is not None and not near:
        absent.append(f"{'machine' if limit.whose == 'machine' else 'limit'} {size(limit.bytes)}")
    remark = f"off the scale: {', '.join(absent)}" if absent else ""
    style.plain_axes(axes, "Memory", unit, remark)
    axes.set_ylim(0, top / scale * _HEADROOM)
    for curve in curves:
        _draw(axes, curve, view, scale)
    if limit is not None and near:
        words = f"{'memory of the machine' if limit.whose == 'machine' else 'limit'} {size(limit.bytes)}"
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
        ceiling = limit.bytes if limit and near else None
        draw_peak(axes, view, extent, scale=scale, curve=_curve_at(curves, extent), ceiling=ceiling)
    if not curves:
        axes.text(
            0.5, 0.5, "no tick was recorded", transform=axes.transAxes, ha="center", va="center", color=style.SOFT,
            fontproperties=style.font(style.NORMAL),
        )  # fmt: skip
    return style.legend(axes, len(remark))


def _curves(view: View, extent: Extent | None) -> list[_Curve]:
    """The tree, its main process where that is not the same, and its proportional set."""
    curves = []
    tree, main, needed = _line(view, _TREE), _line(view, _MAIN), _needed(view)
    if needed is not None:
        curves.append(_Curve(needed, "needed: each page once, no cache", style.GREEN, 1.6, "-", filled=True))
    if tree is not None:
        # A sum above what was needed for certain needs a word: every forked process counts what it shares.
        above = (
            extent is not None and not extent.open_above and (tree.maximum() or 0.0) > _ABOVE * extent.high
        )
        label = "all processes (RSS, shared pages repeated)" if above else "all processes (RSS)"
        aside = above or needed is not None
        curves.append(_Curve(tree, label, style.BLUE, 1.0 if aside else 1.6, "-", filled=not aside))
    if main is not None and not (tree is not None and _same(tree, main)):
        curves.append(_Curve(main, "main process", style.ORANGE, 1.2, "-"))
    pss = _line(view, _PSS)
    if pss is not None:
        curves.append(_Curve(pss, "shared pages once (PSS)", style.PURPLE, 0.0, "", points=True))
    return curves


def _needed(view: View) -> Line | None:
    """Charged memory less page cache, where both are known at every tick: in a group of the run's own."""
    charged, file = view.samples.find(_GROUP), view.samples.find(_FILE)
    if not view.run.info.get("own_cgroup") or not charged or not file or file[0].period > 0:
        return None
    values = view.samples.values(charged[0]) - view.samples.values(file[0])
    made = line_of(view.samples.time, values, 0.0, view.interval)
    return made if len(made.time) else None


def _group_curves(view: View, most: float) -> tuple[list[_Curve], list[str]]:
    """The control group's curves; those that other programs' memory or cache puts out of scale, in words."""
    curves, absent = [], []
    rows = [(_GROUP, "control group with cache", style.SOFT, "--")]
    if _needed(view) is None:
        rows.append((_WORKING_SET, "working set", style.GREEN, "-"))
    for metric, label, colour, dashes in rows:
        found = _line(view, metric)
        maximum = found.maximum() if found else None
        if found is None or maximum is None:
            continue
        if maximum <= NEAR * most or (view.run.info.get("own_cgroup") and most == 0):
            curves.append(_Curve(found, label, colour, 1.0, dashes))
        elif metric == _GROUP:
            absent.append(f"control group {size(maximum)}")
    return curves, absent


def _line(view: View, metric: str) -> Line | None:
    found: tuple[Column, ...] = view.samples.find(metric)
    made = line(view.samples, found[0], view.interval) if found else None
    return made if made is not None and len(made.time) else None


def _same(first: Line, second: Line) -> bool:
    """Whether two lines would hide each other."""
    return len(first.time) == len(second.time) and bool(
        np.allclose(first.value, second.value, rtol=0.002, atol=0, equal_nan=True)
    )


def _draw(axes: Axes, curve: _Curve, view: View, scale: float) -> None:
    marker = "D" if curve.points else "o" if len(curve.line.time) <= _FEW else ""
    draw_line(
        axes, curve.line, view.scale, scale, color=curve.colour, linewidth=curve.width, linestyle=curve.dashes,
        marker=marker, markersize=4.0 if curve.points else 2.5, label=curve.label,
    )  # fmt: skip
    if curve.filled:
        time, value = curve.line.time / view.scale, curve.line.value / scale
        axes.fill_between(
            time, value, 0, facecolor=curve.colour, edgecolor="none", alpha=0.11, linewidth=0, zorder=1
        )


def _draw_kills(axes: Axes, view: View) -> None:
    """Marks the ticks at which the OOM killer had killed another process of the control group."""
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
    """Bytes of the first curve nearest to the moment of the peak."""
    if not curves or extent.at is None:
        return None
    drawn = curves[0].line
    known = ~np.isnan(drawn.value)
    if not known.any():
        return None
    time, value = drawn.time[known], drawn.value[known]
    return float(value[np.argmin(np.abs(time - extent.at))])

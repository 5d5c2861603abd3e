"""Draws a line with its gaps, and the points that have no neighbour to draw a line to."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from otel_memwatch.reports.plot.series import Line


def draw_line(axes: Axes, line: Line, time_scale: float, scale: float, **look: Any) -> None:
    """Draws `line` in the units of the axes; `look` is that of `Axes.plot`, everything of it given."""
    time, value = line.time / time_scale, line.value / scale
    axes.plot(time, value, markeredgewidth=0, zorder=3, **look)
    lonely = line.lonely
    if not look["marker"] and lonely.any():
        axes.plot(
            time[lonely], value[lonely], linestyle="", marker="o", markersize=2.5, color=look["color"], markeredgewidth=0,
            zorder=3,
        )  # fmt: skip

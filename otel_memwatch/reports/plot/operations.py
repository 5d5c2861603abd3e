"""Drawing of operations: bars with names above the memory panel, light areas behind it."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from otel_memwatch.reports import phrases
from otel_memwatch.reports.plot import style
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg

    from otel_memwatch.reports.lanes import Bar, Lanes
    from otel_memwatch.reports.plot.series import View

_SHADED = 60
"""Most outermost operations for which the memory panel is shaded."""
_LEAST = 1 / 900
"""Least width of a bar as a part of the time axis."""
_HEIGHT = 0.84
_LEAST_ROOM = 14
"""Least width in pixels of a bar with a name."""
_KEYS, _KEY_LETTERS = 6, 28


class Drawn(NamedTuple):
    """Content of the lanes as drawn."""

    bars: tuple[Bar, ...]
    colours: dict[str, str]
    key: bool
    """True if a legend of colours is below."""


def draw_lanes(axes: Axes, lanes: Lanes, view: View, renderer: RendererAgg) -> Drawn:
    """Draw the bars, with names if they fit."""
    axes.set_axis_off()
    axes.set_ylim(lanes.lanes, 0)
    # A colour for each series, in the order of lanes and time.
    series = dict.fromkeys(bar.series for bar in lanes.bars if len(bar.names) == 1)
    colours = {name: style.AREAS[i % len(style.AREAS)] for i, name in enumerate(series)}
    scale, least = view.scale, _LEAST * (view.end - view.begin)
    for bar in lanes.bars:
        marked = bar.sets_peak or bar.failed
        bar_area = Rectangle(
            (bar.start / scale, bar.lane + (1 - _HEIGHT) / 2),
            max(bar.end - bar.start, least) / scale,
            _HEIGHT,
            facecolor=_colour(bar, colours),
            edgecolor=style.VERMILION if bar.failed else style.INK if bar.sets_peak else style.PAPER,
            linewidth=1.3 if marked else 0.4,
            linestyle="--" if bar.open and not marked else "-",
            zorder=3 if marked else 2,
        )
        axes.add_patch(bar_area)
    # A legend below the lanes names the colours of bars without a readable name.
    unnamed = _names(axes, lanes.bars, scale, least, renderer)
    keys = [name for name in unnamed if name in colours][:_KEYS]
    if keys:
        patches = [Rectangle((0, 0), 1, 1, facecolor=colours[name], edgecolor="none") for name in keys]
        labels = [style.lettering(shorten(unnamed[name], _KEY_LETTERS)) for name in keys]
        axes.legend(
            patches, labels, loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=len(patches), frameon=False,
            prop=style.font(style.SMALL - 1), labelcolor=style.INK, borderaxespad=0.1, borderpad=0.1, handlelength=0.9,
            handletextpad=0.4, columnspacing=1.2,
        )  # fmt: skip
    if lanes.hidden:
        axes.text(
            1.004, 0.0, f"+{lanes.hidden}", transform=axes.transAxes, va="bottom", ha="left", color=style.SOFT,
            fontproperties=style.font(style.SMALL - 1), gid=f"{count(lanes.hidden, 'operation')} not shown",
        )  # fmt: skip
    _owners(axes, lanes, phrases.lane_owners(view.run, lanes.owners))
    return Drawn(lanes.bars, colours, key=bool(keys))


def _owners(axes: Axes, lanes: Lanes, names: Mapping[int, str]) -> None:
    """Label lanes with their processes if there are several processes."""
    several = len(set(lanes.owners)) > 1
    before = None
    for lane, owner in enumerate(lanes.owners):
        if several and owner != before:
            axes.text(
                -0.008, lane + 0.5, names[owner], transform=axes.get_yaxis_transform(), va="center", ha="right",
                color=style.SOFT, fontproperties=style.font(style.SMALL - 1),
            )  # fmt: skip
        before = owner
    if not several:
        axes.text(
            -0.008, 0.5, "operations", transform=axes.transAxes, va="center", ha="right", color=style.SOFT,
            fontproperties=style.font(style.SMALL - 1),
        )  # fmt: skip


def _colour(bar: Bar, colours: dict[str, str]) -> str:
    return colours[bar.series] if len(bar.names) == 1 else style.MIXED


def _names(
    axes: Axes, bars: tuple[Bar, ...], scale: float, least: float, renderer: RendererAgg
) -> dict[str, str]:
    """Write names onto bars with enough room. Return the series without a readable name, and a label for each."""
    written: dict[str, bool] = {}
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    left, right = axes.get_xlim()
    pixels = axes.get_window_extent(renderer).width / (right - left)
    for bar in bars:
        width = max(bar.end - bar.start, least) / scale
        room = width * pixels - 6
        for name in bar.names:
            written.setdefault(series_name(name), False)
            first.setdefault(series_name(name), name)
            last[series_name(name)] = name
        if room < _LEAST_ROOM:
            continue
        label = axes.text(
            bar.start / scale + width / 2, bar.lane + 0.5, "", ha="center", va="center_baseline", color=style.INK,
            fontproperties=style.font(style.SMALL - 1, bold=bar.sets_peak), zorder=4, clip_on=True,
            gid=style.ON_AREA,
        )  # fmt: skip
        if not style.fitted(label, bar.label, room, renderer, style.beginning):
            label.remove()
        elif len(bar.names) == 1 and not label.get_text().endswith(style.CUT):
            written[bar.series] = True
    return {
        series: first[series] if first[series] == last[series] else f"{first[series]} \u2026 {last[series]}"
        for series, whole in written.items()
        if not whole
    }


def shade(axes: Axes, drawn: Drawn, scale: float) -> None:
    """Shade a panel for the outermost operations."""
    outermost = [bar for bar in drawn.bars if bar.lane == 0 and bar.number == 1]
    if len(outermost) > _SHADED:
        return
    for number, bar in enumerate(outermost):
        axes.axvspan(
            bar.start / scale,
            bar.end / scale,
            facecolor=_colour(bar, drawn.colours),
            edgecolor="none",
            alpha=0.13 if number % 2 == 0 else 0.06,  # distinguish neighbours of one series
            zorder=0,
        )

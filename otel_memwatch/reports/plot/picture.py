"""Puts the panels of the picture together: sizes, the shared time axis, the title, the end."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from otel_memwatch.analysis.replay import DRAWN
from otel_memwatch.analysis.ticks import METRICS
from otel_memwatch.record.format import FINISHED
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import clean, command_line, peak_sentence
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.gpus import GPU_METRICS, gpu_panels
from otel_memwatch.reports.plot.lanes import lay_out
from otel_memwatch.reports.plot.memory import MEMORY_METRICS, draw_memory
from otel_memwatch.reports.plot.operations import draw_lanes, shade
from otel_memwatch.reports.plot.rates import RATE_METRICS, draw_cpu, draw_io
from otel_memwatch.reports.plot.series import View, time_unit
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg

    from otel_memwatch.analysis import RecordedRun

WIDTH, DPI = 12.0, 150
"""Inches, dots per inch."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.42, 0.72, 0.56
"""Inches around the panels."""
_ABOVE, _ROW = 0.34, 0.17
"""Inches above a panel for its title, and for each row of its legend after the first."""
_LANE, _KEY = 0.2, 0.18
"""Inches of a lane of operations, and of the names below them."""
_MEMORY, _RATE, _GPU = 3.2, 1.05, 1.3
"""Inches of panels."""
_VISIBLE = 1 / 700
"""Part of the time axis that an operation must take to be seen on its own."""


class _Panel(NamedTuple):
    """A panel that is drawn, and what it takes: inches of itself and of what stands above it."""

    axes: Axes
    height: float
    above: float


def picture(run: RecordedRun) -> Figure:
    """The whole picture. Its height follows from what there is to be shown."""
    view = _view(run)
    figure = Figure(figsize=(WIDTH, 8.0), dpi=DPI, facecolor=style.PAPER, edgecolor=style.PAPER)
    figure.set_layout_engine("none")
    renderer: RendererAgg = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    panels = _panels(figure, renderer, view)
    height = _TOP + sum(panel.above + panel.height for panel in panels) + _BOTTOM
    figure.set_size_inches(WIDTH, height)
    _lay_out(panels, height)
    _time_axis(panels[-1].axes, view.unit)
    _title(figure, run, renderer)
    _foot(figure, run)
    return figure


def _view(run: RecordedRun) -> View:
    # What figures are still to be made from is asked for too: a day's ticks are read once, not twice.
    figures = METRICS | DRAWN if len(run.record.operation_table) or run.state != FINISHED else ()
    samples = run.samples([*MEMORY_METRICS, *RATE_METRICS, *GPU_METRICS, *figures])
    end = max(run.seconds, float(samples.time[-1]) if len(samples) else 0.0, 1e-3)
    return View(run, samples, end, run.interval or 0.1, *time_unit(end))


def _panels(figure: Figure, renderer: RendererAgg, view: View) -> list[_Panel]:
    """All panels from above to below, drawn at their final width; where they stand follows when all heights are known."""
    memory = _axes(figure, None)
    memory.set_xlim(0, view.end / view.scale)
    panels = []
    lanes = lay_out(view.run.operations, view.end * _VISIBLE)
    below_title = 0.0
    if lanes.lanes:
        strip = _axes(figure, memory)
        drawn = draw_lanes(strip, lanes, view.scale, view.end, renderer)
        shade(memory, drawn, view.scale)
        panels.append(_Panel(strip, lanes.lanes * _LANE, 0.04))
        below_title = _KEY if drawn.key else 0.0
    rows = draw_memory(memory, view)
    _mark_the_end(memory, view.run)
    panels.append(_Panel(memory, _MEMORY, _ABOVE + _ROW * (rows - 1) + below_title))
    listed = [(_RATE, draw_cpu), (_RATE, draw_io), *((_GPU, draw) for draw in gpu_panels(view.samples))]
    for height, draw in listed:
        axes = _axes(figure, memory)
        panels.append(_Panel(axes, height, _ABOVE + _ROW * (draw(axes, view) - 1)))
    return panels


def _axes(figure: Figure, sharex: Axes | None) -> Axes:
    return figure.add_axes((_LEFT / WIDTH, 0.4, (WIDTH - _LEFT - _RIGHT) / WIDTH, 0.2), sharex=sharex)


def _lay_out(panels: Sequence[_Panel], whole: float) -> None:
    top = whole - _TOP
    for panel in panels:
        top -= panel.above + panel.height
        panel.axes.set_position(
            (_LEFT / WIDTH, top / whole, (WIDTH - _LEFT - _RIGHT) / WIDTH, panel.height / whole)
        )
        panel.axes.tick_params(labelbottom=False)


def _time_axis(axes: Axes, unit: str) -> None:
    axes.tick_params(labelbottom=True)
    steps = [1, 2, 3, 5, 6, 10] if unit == "h" else [1, 2, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=steps))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(
        f"time since the start ({unit})", fontproperties=style.font(style.NORMAL), color=style.INK, labelpad=3
    )


def _title(figure: Figure, run: RecordedRun, renderer: RendererAgg) -> None:
    width, height = figure.get_size_inches()
    room = (width - _LEFT - _RIGHT) * figure.dpi
    x = _LEFT / width
    title = figure.text(
        x, 1 - 0.12 / height, "", va="top", fontproperties=style.font(style.LARGE, bold=True), color=style.INK
    )
    style.fitted(title, command_line(run.command) or clean(run.id), room, renderer)
    colour = style.VERMILION if phrases.ended_badly(run) else style.SOFT
    second = figure.text(
        x, 1 - 0.41 / height, "", va="top", fontproperties=style.font(style.NORMAL), color=colour
    )
    style.fitted(second, f"{phrases.ending(run)}; memory {peak_sentence(run.peaks.tree)}", room, renderer)


def _foot(figure: Figure, run: RecordedRun) -> None:
    """Which run it is: a picture is passed around without its directory."""
    width, height = figure.get_size_inches()
    host = run.host.get("name")
    words = clean(run.id) + (f" on {clean(str(host))}" if host else "")
    figure.text(
        1 - _RIGHT / width, 0.1 / height, style.lettering(words[:60]), ha="right", va="bottom", color=style.SOFT,
        fontproperties=style.font(style.SMALL - 1),
    )  # fmt: skip


def _mark_the_end(axes: Axes, run: RecordedRun) -> None:
    """Says at the right edge, where nothing is drawn, that the run ended badly, or not at all."""
    end = run.ending
    words = {"running": "still running", "incomplete": "recording stopped here"}.get(run.state)
    if words is None and phrases.ended_badly(run):
        words = "OOM killer" if end.oom_kills else clean(end.reason)
    if words is None:
        return
    axes.axvline(
        axes.get_xlim()[1],
        color=style.VERMILION,
        marker="",
        linewidth=2.0,
        linestyle="-",
        clip_on=False,
        zorder=6,
    )
    axes.text(
        1.012, 0.5, style.lettering(words[:48]), transform=axes.transAxes, rotation=270, va="center", ha="left",
        fontproperties=style.font(style.SMALL, bold=True), color=style.VERMILION,
    )  # fmt: skip

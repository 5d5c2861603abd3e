"""Layout of the picture: panels and their sizes, the shared time axis, the title, the end of the run."""

from __future__ import annotations

import numpy as np

from otel_memwatch import catalog
from otel_memwatch.errors import UsageError
from otel_memwatch.record.format import FINISHED
from otel_memwatch.reports import phrases
from otel_memwatch.reports.lanes import lay_out
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.gpus import GPU_METRICS, gpu_panels
from otel_memwatch.reports.plot.memory import MEMORY_METRICS, STEPS, WINDOW_METRICS, draw_memory
from otel_memwatch.reports.plot.operations import draw_lanes, shade
from otel_memwatch.reports.plot.peak import peak_extent
from otel_memwatch.reports.plot.rates import RATE_METRICS, draw_cpu, draw_io, has_cpu, has_io
from otel_memwatch.reports.plot.series import View, time_unit
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.replayed import DRAWN
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import clean, command_line, size_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

    from otel_memwatch.reports import Options
    from otel_memwatch.run import OperationFigures, RecordedRun

WIDTH, DPI = 12.0, 150
"""Inches, dots per inch."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.42, 0.72, 0.56
"""Inches around the panels."""
_ABOVE, _ROW = 0.34, 0.17
"""Inches above a panel for its title, and for each row of its legend after the first."""
_LANE, _KEY = 0.2, 0.18
"""Inches of a lane of operations, and of the names below them."""
_MEMORY, _RATE, _GPU = 3.2, 1.05, 1.3
"""Heights of panels in inches."""
_LEAST = 0.15
"""Least height in inches of a panel in a picture of a given height."""
_VISIBLE = 1 / 700
"""Least duration of a visible operation, as a part of the time axis."""


class _Panel(NamedTuple):
    """Drawn panel, with its height and the height of the space above it in inches."""

    axes: Axes
    height: float
    above: float


def picture(run: RecordedRun, options: Options | None = None) -> Figure:
    """Return the whole picture. Its height depends on content unless `options["size"]` has one."""
    options = options or {}
    # Also read the metrics for figures that are not final: this reads a day's samples once, not twice.
    figures = METRICS | DRAWN if len(run.record.operation_table) or run.state != FINISHED else ()
    cut = options.get("begin") is not None or options.get("end") is not None
    windows = WINDOW_METRICS if cut or (run.quality["ticks"] or 0) <= STEPS else ()
    samples = run.samples([*MEMORY_METRICS, *RATE_METRICS, *GPU_METRICS, *windows, *figures])
    whole = max(run.seconds, float(samples.time[-1]) if len(samples) else 0.0, 1e-3)
    begin, end = max(0.0, options.get("begin") or 0.0), min(whole, options.get("end") or whole)
    if begin >= end:
        raise UsageError(f"No samples between {begin:g} and {end:g} s.", f"the run took {whole:.3g} s")
    if (begin, end) != (0.0, whole):
        samples = samples.between(begin, end)
    # The peak selects the unit of all sizes, as in the text report.
    peak, usual = run.peaks.tree, 1024.0**2
    resident = samples.column(catalog.MEMWATCH_TREE_MEMORY_USAGE)
    if peak is not None:
        usual = float(peak.bytes if peak.high is None else peak.high)
    elif len(resident) and not np.isnan(resident).all():
        usual = float(np.nanmax(resident))
    byte_scale, byte_unit = size_scale(usual)
    view = View(
        run, samples, begin, end, run.longest_interval, *time_unit(end - begin), byte_scale, byte_unit
    )
    width, wanted_height = options.get("size") or (WIDTH, None)
    figure = style.new_figure(width, 8.0, options.get("dpi") or DPI)
    renderer: RendererAgg = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    panels = _panels(figure, renderer, view)
    if wanted_height:
        # Fill the given height, but keep each panel readable.
        room = wanted_height - _TOP - _BOTTOM - sum(panel.above for panel in panels)
        factor = room / sum(panel.height for panel in panels)
        panels = [panel._replace(height=max(_LEAST, panel.height * factor)) for panel in panels]
    height = _TOP + sum(panel.above + panel.height for panel in panels) + _BOTTOM
    figure.set_size_inches(width, height)
    top = height - _TOP
    for panel in panels:
        top -= panel.above + panel.height
        panel.axes.set_position(
            (_LEFT / width, top / height, (width - _LEFT - _RIGHT) / width, panel.height / height)
        )
        panel.axes.tick_params(labelbottom=False)
    style.time_axis(panels[-1].axes, view.unit)
    _title(figure, run, renderer, view, options.get("title"))
    # People share a picture without its directory.
    host = run.host.get("name")
    words = clean(run.id) + (f" on {clean(str(host))}" if host else "")
    figure.text(
        1 - _RIGHT / width, 0.1 / height, style.lettering(words[:60]), ha="right", va="bottom", color=style.SOFT,
        fontproperties=style.font(style.SMALL - 1),
    )  # fmt: skip
    if options.get("dark"):
        style.darken(figure)
    return figure


def _panels(figure: Figure, renderer: RendererAgg, view: View) -> list[_Panel]:
    """Return all panels from top to bottom at their final width; positions follow once all heights are known.

    Panels without data are omitted.
    """
    memory = _axes(figure, None)
    memory.set_xlim(view.begin / view.scale, view.end / view.scale)
    panels = []
    lanes = lay_out(_operations(view), (view.end - view.begin) * _VISIBLE, view.run.ranks)
    below_title = 0.0
    if lanes.lanes:
        strip = _axes(figure, memory)
        drawn = draw_lanes(strip, lanes, view, renderer)
        shade(memory, drawn, view.scale)
        panels.append(_Panel(strip, lanes.lanes * _LANE, 0.04))
        below_title = _KEY if drawn.key else 0.0
    rows = draw_memory(memory, view)
    _mark_the_end(memory, view)
    panels.append(_Panel(memory, _MEMORY, _ABOVE + _ROW * (rows - 1) + below_title))
    listed = [
        *([(_RATE, draw_cpu)] if has_cpu(view) else []),
        *([(_RATE, draw_io)] if has_io(view) else []),
        *((_GPU, draw) for draw in gpu_panels(view.samples)),
    ]
    for height, draw in listed:
        axes = _axes(figure, memory)
        panels.append(_Panel(axes, height, _ABOVE + _ROW * (draw(axes, view) - 1)))
    return panels


def _operations(view: View) -> Sequence[OperationFigures]:
    """Return the operations that were open between the ends of the time axis, cut there."""
    listed = view.run.operations
    if view.begin <= 0 and view.end >= view.run.seconds:
        return listed
    places: dict[int, int] = {}
    shown: list[OperationFigures] = []
    for index, figures in enumerate(listed):
        if figures.end >= view.begin and figures.start <= view.end:
            places[index] = len(shown)
            parent = None if figures.parent is None else places.get(figures.parent)
            shown.append(
                figures._replace(
                    start=max(view.begin, figures.start), end=min(view.end, figures.end), parent=parent
                )
            )
    return shown


def _axes(figure: Figure, sharex: Axes | None) -> Axes:
    width = figure.get_size_inches()[0]
    return figure.add_axes((_LEFT / width, 0.4, (width - _LEFT - _RIGHT) / width, 0.2), sharex=sharex)


def _title(figure: Figure, run: RecordedRun, renderer: RendererAgg, view: View, given: str | None) -> None:
    width, height = figure.get_size_inches()
    room = (width - _LEFT - _RIGHT) * figure.dpi
    x = _LEFT / width
    title = figure.text(
        x, 1 - 0.12 / height, "", va="top", fontproperties=style.font(style.LARGE, bold=True), color=style.INK
    )
    style.fitted(title, clean(given) if given else command_line(run.command) or clean(run.id), room, renderer)
    colour = style.VERMILION if run.ending.bad else style.SOFT
    second = figure.text(
        x, 1 - 0.41 / height, "", va="top", fontproperties=style.font(style.NORMAL), color=colour
    )
    extent = peak_extent(run.peaks.tree, (view.byte_scale, view.byte_unit))
    memory = "unknown" if extent is None else extent.words
    style.fitted(second, f"{phrases.ending(run)}; memory needed: {memory}", room, renderer)


def _mark_the_end(axes: Axes, view: View) -> None:
    """Write at the right edge that the run failed or has not ended."""
    run = view.run
    if view.end < run.seconds:
        return
    end = run.ending
    words = {"running": "still running", "incomplete": "recording stopped here"}.get(run.state)
    if words is None and run.ending.bad:
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

"""Figure of phases: memory, CPU, I/O by phase, duration by phase."""

from __future__ import annotations

import warnings
from itertools import pairwise

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from otel_memwatch.compat.qefficient.phases import COLOURS, MB, Phase, Timeline, phase_at, scale
from otel_memwatch.errors import RunError
from otel_memwatch.reports import picture_format
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import count, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO, BinaryIO

    from matplotlib.axes import Axes

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

TITLE = "QEfficient Enhanced Memory & Performance Analysis - Synchronized View"

_BLUE, _RED, _ORANGE, _DARK, _GREY = "#2E86AB", "#E74C3C", "#FF6B35", "#333333", "#666666"
_READ, _WRITE = "#2196F3", "#FF5722"
_ZONES = ((0, 25, "#4CAF50"), (25, 50, "#FFC107"), (50, 75, "#FF9800"), (75, 100, "#F44336"))
_SIGNIFICANT = 0.01
"""MB below which a phase's I/O is not drawn."""
_LETTERS = 48
"""Maximum length of a name. The names beside the picture determine its width."""
_ROWS = 40
"""Maximum number of names in the legend and of bars in a panel."""
_SEEN = 2000
"""Number of distinguishable sections of the time axis."""


def figure(timeline: Timeline) -> Figure:
    """Return the figure of a timeline with at least one sample. Does not change global state of matplotlib."""
    drawn = Figure(figsize=(20, 12), facecolor="white")
    FigureCanvasAgg(drawn)
    margins = {"left": 0.05, "right": 0.98, "top": 0.90, "bottom": 0.08}
    grid = drawn.add_gridspec(3, 2, height_ratios=[2.5, 1.8, 1.2], hspace=0.35, wspace=0.2, **margins)
    panels: tuple[Axes, ...] = (
        drawn.add_subplot(grid[0, :]),
        drawn.add_subplot(grid[1, :]),
        drawn.add_subplot(grid[2, 0]),
        drawn.add_subplot(grid[2, 1]),
    )
    for axes, draw in zip(panels, (_memory, _cpu, _disk, _durations), strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        for spine in axes.spines.values():
            spine.set(edgecolor=_DARK, linewidth=1.2)
        axes.tick_params(colors=_DARK)
        axes.set_axisbelow(True)
        draw(axes, timeline)
    drawn.suptitle(TITLE, fontsize=18, fontweight="bold", color=_BLUE, y=0.95)
    return drawn


def save(timeline: Timeline, target: Path | IO[Any], form: str = "png") -> None:
    """Write the figure as PNG, PDF or SVG, independent of the file name."""
    # matplotlib's warnings about fonts and margins do not help the reader of the figure.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure(timeline).savefig(
            target, format=form, dpi=300, bbox_inches="tight", pad_inches=0.2, facecolor="white"
        )


def _finish(axes: Axes, title: str, colour: str | None = None, grid: str = "both", **labels: str) -> None:
    axes.set(**labels)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=13, fontweight="bold", color=_DARK)
    axes.set_title(title, fontsize=14, fontweight="bold", pad=15, color=colour or _DARK)
    axes.grid(visible=True, axis=grid, alpha=0.3, linewidth=0.8, color="#CCCCCC")  # type: ignore[arg-type]


def _nothing(axes: Axes, message: str, title: str) -> None:
    axes.text(0.5, 0.5, message, ha="center", va="center", transform=axes.transAxes, fontsize=12, color=_GREY)
    axes.set_title(title, fontsize=14, fontweight="bold", color=_DARK)


def _phases(axes: Axes, phases: Sequence[Phase], height: float) -> None:
    """Draw a coloured background from each mark to the next, and a line at every mark except the first."""
    if len(phases) > _SEEN:
        # If several phases begin at the same spot of the picture, draw only the last of them.
        first, width = phases[0].start, max(phases[-1].start - phases[0].start, 1e-9) / _SEEN
        phases = list({int((phase.start - first) / width): phase for phase in phases}.values())
    for phase, following in pairwise(phases):
        colour = COLOURS.get(phase.name, "#F0F0F0")
        width = following.start - phase.start
        axes.add_patch(
            Rectangle((phase.start, 0), width, height, linewidth=0, facecolor=colour, alpha=0.15, zorder=0)
        )
    for phase in phases[1:]:
        axes.axvline(phase.start, color=_GREY, linestyle="--", alpha=0.6, linewidth=2, zorder=3)


def _memory(axes: Axes, timeline: Timeline) -> None:
    divisor, unit = scale(timeline.peak_rss)
    rss, peak = [value / divisor for value in timeline.rss], timeline.peak_rss / divisor
    _phases(axes, timeline.phases, peak * 1.1)
    axes.plot(
        timeline.times, rss, color=_BLUE, linewidth=3.5, alpha=0.9, zorder=5, label="Memory Usage (RSS)"
    )
    axes.fill_between(timeline.times, rss, color=_BLUE, alpha=0.15, zorder=1)
    if timeline.peak_rss_time is not None:
        at = timeline.peak_rss_time
        marker = {"markersize": 14, "markeredgecolor": "white", "markeredgewidth": 3}
        axes.plot([at], [peak], "o", color=_RED, zorder=10, label="Peak Memory", **marker)  # type: ignore[arg-type]
        axes.annotate(
            f"Peak: {peak:.1f} {unit}\nPhase: {_literal(phase_at(timeline.phases, at))}",
            xy=(at, peak),
            # At the right edge, the box would overlap the legend; place it to the left of the peak.
            xytext=(25, 25) if at <= 0.85 * timeline.times[-1] else (-170, 25),
            textcoords="offset points",
            bbox={
                "boxstyle": "round,pad=0.6",
                "facecolor": _RED,
                "alpha": 0.95,
                "edgecolor": "white",
                "linewidth": 2,
            },
            arrowprops={"arrowstyle": "->", "color": _RED, "lw": 2.5},
            fontsize=11,
            fontweight="bold",
            color="white",
            ha="left",
            # The box extends down from its corner; upwards it would cover the title.
            va="top",
            zorder=15,
        )
    axes.set_xlim(0, max(timeline.times[-1], 1e-3) * 1.02)
    axes.set_ylim(0, max(peak, 1e-3) * 1.15)
    title = f"Memory Usage Over Time | Peak: {peak:.1f} {unit} | Duration: {timeline.times[-1]:.1f}s"
    _finish(axes, title, _BLUE, xlabel="Time (seconds)", ylabel=f"Memory Usage ({unit})")
    _phase_legend(axes, timeline.phases)


def _phase_legend(axes: Axes, phases: Sequence[Phase]) -> None:
    """Draw one entry for each name, with the total time of its phases."""
    totals: dict[str, float] = {}
    for phase in _shown(phases):
        totals[phase.name] = totals.get(phase.name, 0.0) + (phase.seconds or 0.0)
    if not totals:
        return
    shown = list(totals)[:_ROWS]
    patches = [Rectangle((0, 0), 1, 1, facecolor=COLOURS.get(name, _GREY), alpha=0.8) for name in shown]
    labels = [_literal(name) + (f" ({totals[name]:.1f}s)" if totals[name] else "") for name in shown]
    if len(totals) > _ROWS:
        patches.append(Rectangle((0, 0), 1, 1, facecolor="none"))
        labels.append(f"{count(len(totals) - _ROWS, 'name')} more")
    legend = axes.legend(
        patches,
        labels,
        title="QEfficient Phases",
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        fontsize=10,
        title_fontsize=11,
    )
    legend.get_title().set_fontweight("bold")


def _shown(phases: Sequence[Phase]) -> list[Phase]:
    return [phase for phase in phases if not phase.end_mark]


def _cpu(axes: Axes, timeline: Timeline) -> None:
    if not timeline.cpu:
        _nothing(axes, "CPU data not available or not synchronized", "CPU Usage Over Time")
        axes.set_xlim(0, max(timeline.times[-1], 1e-3) * 1.02)
        return
    highest, average = max(timeline.cpu), sum(timeline.cpu) / len(timeline.cpu)
    _phases(axes, timeline.phases, 100)
    axes.plot(
        timeline.times, timeline.cpu, color=_ORANGE, linewidth=3, alpha=0.9, zorder=5, label="CPU Usage"
    )
    axes.fill_between(timeline.times, timeline.cpu, color=_ORANGE, alpha=0.2, zorder=1)
    axes.axhline(average, color=_RED, alpha=0.8, linewidth=2.5, zorder=4, label=f"Average: {average:.1f}%")
    for low, high, colour in _ZONES:
        axes.axhspan(low, high, alpha=0.08, color=colour, zorder=0)
    axes.set_xlim(0, max(timeline.times[-1], 1e-3) * 1.02)
    axes.set_ylim(0, max(highest, 1.0) * 1.1)
    title = f"CPU Usage Over Time | Peak: {highest:.1f}% | Average: {average:.1f}%"
    _finish(axes, title, _ORANGE, xlabel="Time (seconds)", ylabel="CPU Usage (%)")
    axes.legend(loc="upper right", fontsize=10, framealpha=0.9)


def _disk(axes: Axes, timeline: Timeline) -> None:
    if len(timeline.phases) < 2:
        _nothing(axes, "No operation phases available", "Disk I/O per Phase")
        return
    amounts = [
        (phase.name, (phase.read or 0) / MB, (phase.written or 0) / MB) for phase in _shown(timeline.phases)
    ]
    amounts = [(name, read, written) for name, read, written in amounts if max(read, written) > _SIGNIFICANT]
    total_read, total_written = sum(amount[1] for amount in amounts), sum(amount[2] for amount in amounts)
    amounts = [amounts[index] for index in _largest([max(amount[1:]) for amount in amounts])]
    if not amounts:
        _nothing(axes, "No significant disk I/O detected", "Disk I/O per Phase")
        return
    for offset, colour, column, label in ((-0.175, _READ, 1, "Read (MB)"), (0.175, _WRITE, 2, "Write (MB)")):
        heights: list[float] = [amount[column] for amount in amounts]  # type: ignore[misc]
        places = [index + offset for index in range(len(amounts))]
        bars = axes.bar(
            places, heights, 0.35, color=colour, alpha=0.8, edgecolor="white", linewidth=1.5, label=label
        )
        labels = [f"{height:.1f}" if height > _SIGNIFICANT else "" for height in heights]
        axes.bar_label(bars, labels, padding=2, fontsize=9, fontweight="bold")
    names = [_literal(name) for name, _, _ in amounts]
    axes.set_xticks(range(len(amounts)), names, rotation=45, ha="right", fontsize=10)
    axes.set_ylim(0, max(max(read, written) for _, read, written in amounts) * 1.5)
    _finish(axes, "Disk I/O per Operation Phase", grid="y", xlabel="Operation Phase", ylabel="Total I/O (MB)")
    axes.legend(loc="upper right", fontsize=10, framealpha=0.9, ncols=2)
    total = f"Total I/O: {total_read:.1f} MB read, {total_written:.1f} MB write"
    _box(axes, 0.02, 0.98, total, va="top", ha="left")


def _durations(axes: Axes, timeline: Timeline) -> None:
    timed = [(phase.name, phase.seconds) for phase in _shown(timeline.phases) if phase.seconds]
    if not timed:
        _nothing(axes, "No timing data available", "Phase Duration Analysis")
        return
    total = sum(seconds for _, seconds in timed)
    timed = [timed[index] for index in _largest([seconds for _, seconds in timed])]
    durations = [seconds for _, seconds in timed]
    colours = [COLOURS.get(name, _GREY) for name, _ in timed]
    style = {"height": 0.6, "alpha": 0.8, "edgecolor": "white", "linewidth": 1.5}
    bars = axes.barh(range(len(timed)), durations, color=colours, **style)  # type: ignore[arg-type]
    labels = [f"{s // 60:.0f}m {s % 60:.1f}s" if s >= 60 else f"{s:.1f}s" for s in durations]
    axes.bar_label(bars, labels, padding=4, fontsize=10, fontweight="bold")
    axes.set_yticks(range(len(timed)), [_literal(name) for name, _ in timed], fontsize=11)
    axes.set_xlim(0, max(durations) * 1.35)
    _finish(axes, "Phase Duration Analysis", grid="x", xlabel="Duration (seconds)")
    _box(axes, 0.98, 0.02, f"Total: {total:.1f}s", va="bottom", ha="right")


def _largest(sizes: Sequence[float]) -> list[int]:
    """Return the indices of the largest sizes in ascending order, at most as many as a panel can show."""
    return sorted(sorted(range(len(sizes)), key=lambda index: -sizes[index])[:_ROWS])


def _box(axes: Axes, x: float, y: float, text: str, **alignment: Any) -> None:
    box = {
        "boxstyle": "round,pad=0.4",
        "facecolor": "white",
        "alpha": 0.9,
        "edgecolor": "gray",
        "linewidth": 1,
    }
    axes.text(x, y, text, transform=axes.transAxes, fontsize=10, bbox=box, **alignment)


def _literal(text: str) -> str:
    """Return a name that matplotlib does not parse as a formula and that is short enough for the panels."""
    return shorten(text, _LETTERS).replace("$", r"\$")


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Draw a run's outermost operations in the format of `options["suffix"]`: ".png" (the default), ".pdf" or ".svg".

    Raises `UsageError` for another one, `RunError` for a run without samples.
    """
    form = picture_format(options)
    from otel_memwatch.compat.qefficient.phases.timeline import timeline

    drawn = timeline(run)
    if not drawn.times:
        raise RunError(
            "There is nothing to draw: the run has no samples.", "it was shorter than one interval"
        )
    save(drawn, out, form)

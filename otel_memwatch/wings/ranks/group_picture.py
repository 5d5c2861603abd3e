"""A group as a picture: what all needed together, between its bounds, and each rank below."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from otel_memwatch.reports.plot.style import (
    AREAS,
    BLUE,
    DEVICES,
    FAINT,
    INK,
    PAPER,
    SKY,
    SOFT,
    darken,
    font,
    legend,
    lettering,
    plain_axes,
)
from otel_memwatch.text import clean, command_line, peak_sentence, shorten, size_scale

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from otel_memwatch.wings.ranks.rank_group import RankGroup

POINTS = 1500
"""Across the picture."""
NAMED = 8
"""Ranks that have a line of their own; of more, the rest is the area that it lies in."""


def draw(
    group: RankGroup,
    out: BinaryIO,
    *,
    form: str = "png",
    title: str | None = None,
    dark: bool = False,
    size: tuple[float, float | None] | None = None,
    dpi: int | None = None,
) -> None:
    """Draws the picture. `form` is "png", "pdf" or "svg"."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = size or (12.0, None)
    figure = Figure(figsize=(width, height or 7.0), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    seconds, low, high, guess = group.sum_curve(POINTS)
    finite = high[high < float("inf")]
    scale, unit = size_scale(max(float(finite.max()) if len(finite) else 0.0, float(guess.max()), 1.0))
    _together(group, above, (seconds, low / scale, high / scale, guess / scale), unit)
    times, curves = group.rank_curves(POINTS)
    largest = max((float(curve.max()) for _, curve in curves), default=1.0)
    scale, unit = size_scale(max(largest, 1.0))
    _ranks(group, below, times, [(rank.label, curve / scale) for rank, curve in curves], unit)
    below.set_xlabel("seconds since the first start", fontproperties=font(), color=INK)
    heading = title or f"{clean(group.name)}: {shorten(command_line(group.command), 90)}"
    figure.suptitle(lettering(heading), fontproperties=font(13.0, bold=True), color=INK, x=0.01, ha="left")
    if dark:
        darken(figure)
        figure.set_facecolor("#1B1B1D")
    figure.savefig(out, format=form, dpi=dpi or 150)


Curves = tuple["NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]"]


def _together(group: RankGroup, axes: Axes, curves: Curves, unit: str) -> None:
    seconds, low, high, guess = curves
    plain_axes(axes, "All together", unit, "at one instant, between its bounds")
    axes.fill_between(seconds, low, high, color=SKY, alpha=0.35, linewidth=0, step="mid", label="bounds")
    axes.plot(seconds, guess, color=BLUE, linewidth=1.2, drawstyle="steps-mid", label="most likely")
    peak = group.together.peak
    if peak is not None and peak.at is not None:
        right = peak.at > float(seconds[-1]) / 2
        axes.axvline(peak.at, color=SOFT, linewidth=0.8, linestyle=":")
        axes.annotate(
            lettering(peak_sentence(peak, source=False)), (peak.at, 1.0), (-4 if right else 4, -11), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="right" if right else "left", fontproperties=font(), color=INK,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    legend(axes)


def _ranks(
    group: RankGroup,
    axes: Axes,
    times: NDArray[np.float64],
    curves: list[tuple[str, NDArray[np.float64]]],
    unit: str,
) -> None:
    import numpy as np

    plain_axes(axes, "Ranks", unit, f"{len(curves)} of {group.size or len(curves)}")
    order = sorted(range(len(curves)), key=lambda index: -float(curves[index][1].max()))
    named = sorted(order[:NAMED])
    if len(curves) > NAMED:
        values = np.array([curve for _, curve in curves])
        axes.fill_between(
            times,
            values.min(axis=0),
            values.max(axis=0),
            color=FAINT,
            linewidth=0,
            step="mid",
            label="all ranks",
        )
        axes.plot(
            times, np.median(values, axis=0), color=SOFT, linewidth=1.0, drawstyle="steps-mid", label="median"
        )
    colours = (*DEVICES, *AREAS)
    for place, index in enumerate(named):
        label, curve = curves[index]
        axes.plot(
            times, curve, color=colours[place % len(colours)], linewidth=1.0, drawstyle="steps-mid", label=lettering(shorten(clean(label), 24))
        )  # fmt: skip
    for death in group.dead[:NAMED]:
        at = group.end_of(death)
        axes.axvline(at, color="#D55E00", linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=0)
    legend(axes)

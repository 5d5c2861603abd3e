"""Picture of a group: the memory of all ranks above, each rank below."""

from __future__ import annotations

import math
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
"""Most points of a curve."""
NAMED = 8
"""Most ranks with a separate line. If there are more, an area and the median represent all ranks."""


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
    """Draw the picture. `form` is "png", "pdf" or "svg"."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = size or (12.0, None)
    figure = Figure(figsize=(width, height or 7.0), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    _together(group, above)
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


def _together(group: RankGroup, axes: Axes) -> None:
    seconds, bound, guess = group.sum_curve(POINTS)
    top = float(guess.max())
    if bound is not None:
        top = max(top, float(bound.high[bound.high < math.inf].max(initial=0.0)))
    scale, unit = size_scale(max(top, 1.0))
    about = (
        "at one instant, between its bounds"
        if bound is not None
        else "samples of all hosts, by their wall clocks"
    )
    plain_axes(axes, "All together", unit, about)
    if bound is not None:
        low, high = bound.low / scale, bound.high / scale
        axes.fill_between(seconds, low, high, color=SKY, alpha=0.35, linewidth=0, step="mid", label="bounds")
    axes.plot(seconds, guess / scale, color=BLUE, linewidth=1.2, drawstyle="steps-mid", label="best estimate")
    peak = group.together.peak
    if peak.at is not None:
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

"""Picture of the trade: memory limit against time, with the knee."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.errors import RunError
from otel_memwatch.reports.plot.style import BLUE, FAINT, GREEN, INK, PAPER, VERMILION, font, lettering
from otel_memwatch.text import command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.advice.bisection import Knee, Trial

_ABOVE = 1.15
"""Place of the run without a limit, and of runs that did not end, as a multiple of the largest value."""


def draw(trials: Sequence[Trial], knee: Knee, command: Sequence[str], path: str) -> None:
    """Write the picture. Runs that were slow for lack of memory, hung or were killed stand out.

    Raises `RunError` if the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    limited = sorted((trial for trial in trials if trial.limit), key=lambda trial: trial.limit)
    longest = max((trial.seconds or 0.0 for trial in trials if trial.ended), default=1.0) or 1.0
    ended = [trial for trial in limited if trial.ended]
    axes.plot([t.limit for t in ended], [t.seconds or 0.0 for t in ended], color=BLUE, linewidth=1.4)
    for trial in limited:
        known = trial.ended and trial.seconds is not None
        slow = not known or (trial.row is not None and trial.row.short_of_memory)
        height = trial.seconds if known and trial.seconds is not None else _ABOVE * longest
        axes.plot(
            trial.limit,
            height,
            marker="o" if known else "x",
            color=VERMILION if slow else GREEN,
            linestyle="none",
        )
        if not known:
            word = "hangs" if trial.hung else "killed"
            axes.annotate(
                word, (trial.limit, height), xytext=(0, 6), textcoords="offset points", ha="center", color=INK,
                fontproperties=font(),
            )  # fmt: skip
    alone = next((trial for trial in trials if not trial.limit and trial.seconds), None)
    if alone is not None and alone.seconds is not None:
        axes.axhline(alone.seconds, color=INK, linewidth=0.8, linestyle="--")
        axes.annotate(
            "without a limit", (1.0, alone.seconds), xycoords=("axes fraction", "data"), xytext=(-4, 4),
            textcoords="offset points", ha="right", color=INK, fontproperties=font(),
        )  # fmt: skip
    if knee.enough is not None:
        axes.axvline(knee.enough, color=GREEN, linewidth=1.2)
        axes.annotate(
            f"full speed from {knee.enough} MiB", (knee.enough, 0.02), xycoords=("data", "axes fraction"),
            xytext=(-5, 4), textcoords="offset points", ha="right", color=INK, fontproperties=font(),
        )  # fmt: skip
    axes.set_ylim(0, 1.25 * _ABOVE * longest)
    axes.set_xlabel("memory limit in MiB", fontproperties=font(), color=INK)
    axes.set_ylabel("seconds", fontproperties=font(), color=INK)
    axes.grid(visible=True, color=FAINT, linewidth=0.6)
    figure.suptitle(
        lettering(command_line(command, 90)),
        fontproperties=font(12.0, bold=True),
        color=INK,
        x=0.01,
        ha="left",
    )
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}.") from None

"""Peak in the memory panel: a point if it is exact, a bar between its bounds, an arrow without an upper bound."""

from __future__ import annotations

from functools import partial

from otel_memwatch.model import Certainty
from otel_memwatch.reports.plot import style
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import size, size_in, size_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from otel_memwatch.model import Peak
    from otel_memwatch.reports.plot.series import View

LABEL = "peak-label"
"""Group id that identifies the label in the figure."""

_NEAR_CURVE = 0.03
"""Least distance of the peak from the curve for a line between them, as a part of the panel's height."""


class Extent(NamedTuple):
    """Drawn range of a peak, in bytes and seconds."""

    low: float
    high: float
    at: float | None
    certainty: Certainty
    open_above: bool
    words: str


def peak_extent(peak: Peak | None, unit: tuple[float, str] | None = None) -> Extent | None:
    """Return the drawn range of a peak; `None` without a peak. `unit` is from `size_scale`; by default each size has a separate one.

    =========  ========================  ==========  ====================
    certainty  range                     open above  words
    =========  ========================  ==========  ====================
    exact      the peak                  no          "312.4 MiB, exact"
    interval   its bounds                no          "300.0 to 410.0 MiB"
    interval   its lower bound alone     yes         "at least 300.0 MiB"
    censored   lower bound or 0, to the  no          "at most 9.4 MiB"
               counter
    sampled    the largest sample        yes         "9.4 MiB, sampled"
    =========  ========================  ==========  ====================
    """
    if peak is None:
        return None
    shown = size if unit is None else partial(size_in, scale=unit[0], unit=unit[1])
    high, open_above = float(peak.bytes), False
    if peak.certainty is Certainty.EXACT:
        low, words = high, f"{shown(peak.bytes)}, exact"
    elif peak.certainty is Certainty.INTERVAL:
        low = float(peak.bytes if peak.low is None else peak.low)
        if peak.high is None:
            high, open_above, words = low, True, f"at least {shown(low)}"
        elif unit is None:
            high, words = float(peak.high), size_range(low, peak.high, " to ")
        else:
            high, words = float(peak.high), f"{shown(low).split()[0]} to {shown(peak.high)}"
    elif peak.certainty is Certainty.CENSORED:
        low, words = float(peak.low or 0), f"at most {shown(peak.bytes)}"
    else:
        low, open_above, words = high, True, f"{shown(peak.bytes)}, sampled"
    return Extent(low, high, peak.at, peak.certainty, open_above, words)


def draw_peak(
    axes: Axes, view: View, extent: Extent, *, scale: float, curve: float | None, top: float
) -> None:
    """Draw the peak and its label.

    Args:
        axes: the panel, with its limits set.
        view: the run and its time axis.
        extent: range of the peak.
        scale: bytes in the panel's unit.
        curve: value of the curve at the time of the peak, in bytes.
        top: largest drawn value in bytes; the label is above it.
    """
    low, high = extent.low / scale, extent.high / scale
    if extent.at is None:
        axes.axhspan(
            low, max(high, low), facecolor=style.INK, edgecolor=style.INK, linewidth=0.9, alpha=0.25, zorder=4
        )
        _label(axes, extent, ((view.begin + view.end) / view.scale / 2, high), top / scale)
        return
    at = extent.at / view.scale
    if curve is not None and (low - curve / scale) > _NEAR_CURVE * axes.get_ylim()[1]:
        axes.plot(
            [at, at], [curve / scale, low], color=style.INK, linewidth=0.9, linestyle=":", marker="", zorder=4
        )
    if high > low:
        axes.errorbar(
            [at], [low], yerr=[[0.0], [high - low]], fmt="none", ecolor=style.INK, elinewidth=1.6, capsize=5, capthick=1.6,
            zorder=5,
        )  # fmt: skip
    else:
        exact = extent.certainty is Certainty.EXACT
        axes.plot(
            [at], [low], linestyle="", marker="o" if exact else "^", markersize=7, color=style.INK if exact else style.PAPER,
            markeredgecolor=style.INK, markeredgewidth=1.2, clip_on=False, zorder=6,
        )  # fmt: skip
    _label(axes, extent, (at, high), top / scale)


def _label(axes: Axes, extent: Extent, point: tuple[float, float], top: float) -> None:
    """Draw the label above all curves and towards the middle of the panel, with a line to its peak."""
    x, y = point
    ceiling = axes.get_ylim()[1]
    foot = top + 0.3 * (ceiling - top)
    left, right = axes.get_xlim()
    part = (x - left) / (right - left)
    side = "left" if part < 0.15 else "right" if part > 0.85 else "center"
    if foot - y > 0.1 * ceiling:
        axes.plot([x, x], [y, foot], color=style.SOFT, linewidth=0.7, linestyle="-", marker="", zorder=1.5)
    axes.text(
        x, foot, f"peak {extent.words}", ha=side, va="bottom", fontproperties=style.font(style.NORMAL, bold=True),
        color=style.INK, zorder=8, gid=LABEL,
    )  # fmt: skip

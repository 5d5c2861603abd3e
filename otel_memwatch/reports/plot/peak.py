"""The peak in the memory panel: a point where it is exact, a bar between its bounds, an arrow where one is unknown."""

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
"""Group id of the label, by which it is found in the figure."""

_NEAR_CURVE = 0.03
"""Part of the panel's height that the peak has to stand above the curve for a stem to join them."""


class Extent(NamedTuple):
    """What is drawn of a peak, in bytes and seconds."""

    low: float
    high: float
    at: float | None
    certainty: Certainty
    open_above: bool
    words: str


def peak_extent(peak: Peak | None, unit: tuple[float, str] | None = None) -> Extent | None:
    """What is drawn of a peak, its sizes in a unit of `size_scale` or each in its own; `None` when there is none.

    =========  ========================  ==========  ====================
    certainty  from and to               open above  words
    =========  ========================  ==========  ====================
    exact      the peak                  no          "312.4 MiB, exact"
    interval   its bounds                no          "300.0 to 410.0 MiB"
    interval   its lower bound alone     yes         "at least 300.0 MiB"
    censored   what is certain, or 0,    no          "at most 9.4 MiB"
               and the counter
    sampled    the largest sample        yes         "9.4 MiB, sampled"
    =========  ========================  ==========  ====================
    """
    if peak is None:
        return None
    told = size if unit is None else partial(size_in, scale=unit[0], unit=unit[1])
    high, open_above = float(peak.bytes), False
    if peak.certainty is Certainty.EXACT:
        low, words = high, f"{told(peak.bytes)}, exact"
    elif peak.certainty is Certainty.INTERVAL:
        low = float(peak.bytes if peak.low is None else peak.low)
        if peak.high is None:
            high, open_above, words = low, True, f"at least {told(low)}"
        elif unit is None:
            high, words = float(peak.high), size_range(low, peak.high, " to ")
        else:
            high, words = float(peak.high), f"{told(low).split()[0]} to {told(peak.high)}"
    elif peak.certainty is Certainty.CENSORED:
        low, words = float(peak.low or 0), f"at most {told(peak.bytes)}"
    else:
        low, open_above, words = high, True, f"{told(peak.bytes)}, sampled"
    return Extent(low, high, peak.at, peak.certainty, open_above, words)


def draw_peak(
    axes: Axes, view: View, extent: Extent, *, scale: float, curve: float | None, top: float
) -> None:
    """Draws the peak and its label.

    Args:
        axes: the panel, its limits set.
        view: the run and its time axis.
        extent: of the peak.
        scale: bytes in the panel's unit.
        curve: bytes of the curve at the moment of the peak.
        top: bytes up to which something is drawn: the label stands above.
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
    """Above all that is drawn, so that it hides nothing; towards the middle of the panel, joined to its peak."""
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

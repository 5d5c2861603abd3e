"""The peak in the memory panel: a point where it is exact, a bar between its bounds, an arrow where one is unknown."""

from __future__ import annotations

from otel_memwatch.model import Certainty
from otel_memwatch.reports.formatting import size, size_range
from otel_memwatch.reports.plot import style
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

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

    @property
    def top(self) -> float:
        """The highest point drawn."""
        return self.high


def peak_extent(peak: Peak | None) -> Extent | None:
    """What is drawn of a peak; `None` when there is none."""
    if peak is None:
        return None
    low = float(peak.bytes if peak.low is None else peak.low)
    if peak.certainty is Certainty.EXACT:
        return Extent(
            peak.bytes,
            peak.bytes,
            peak.at,
            peak.certainty,
            open_above=False,
            words=f"{size(peak.bytes)}, exact",
        )
    if peak.certainty is Certainty.INTERVAL:
        if peak.high is None:
            return Extent(low, low, peak.at, peak.certainty, open_above=True, words=f"at least {size(low)}")
        words = size_range(low, peak.high, " to ")
        return Extent(low, peak.high, peak.at, peak.certainty, open_above=False, words=words)
    if peak.certainty is Certainty.CENSORED:
        low = float(peak.low or 0)
        return Extent(
            low, peak.bytes, peak.at, peak.certainty, open_above=False, words=f"at most {size(peak.bytes)}"
        )
    return Extent(
        peak.bytes, peak.bytes, peak.at, peak.certainty, open_above=True, words=f"{size(peak.bytes)}, sampled"
    )


def draw_peak(
    axes: Axes, view: View, extent: Extent, *, scale: float, curve: float | None, ceiling: float | None
) -> None:
    """Draws the peak and its label.

    Args:
        axes: the panel, its limits set.
        view: the run and its time axis.
        extent: of the peak.
        scale: bytes in the panel's unit.
        curve: bytes of the curve at the moment of the peak.
        ceiling: bytes of a limit line that the label must not lie on.
    """
    low, high = extent.low / scale, extent.high / scale
    line = None if ceiling is None else ceiling / scale
    if extent.at is None:
        axes.axhspan(
            low, max(high, low), facecolor=style.INK, edgecolor=style.INK, linewidth=0.9, alpha=0.25, zorder=4
        )
        _label(axes, extent, (view.end / view.scale / 2, high), line)
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
    _label(axes, extent, (at, high), line)


def _label(axes: Axes, extent: Extent, point: tuple[float, float], line: float | None) -> None:
    """Above the peak, and above a limit line that is near; towards the middle of the panel."""
    x, y = point
    height = axes.get_ylim()[1]
    if line is not None and y < line + 0.02 * height and line - y < 0.14 * height:
        y = line
    left, right = axes.get_xlim()
    part = (x - left) / (right - left)
    side = "left" if part < 0.15 else "right" if part > 0.85 else "center"
    shift = {"left": -4, "right": 4, "center": 0}[side]
    axes.annotate(
        f"peak {extent.words}", (x, y), (shift, 9 if extent.open_above else 7), textcoords="offset points", ha=side,
        va="bottom", fontproperties=style.font(style.NORMAL, bold=True), color=style.INK, path_effects=style.HALO,
        zorder=8, gid=LABEL,
    )  # fmt: skip

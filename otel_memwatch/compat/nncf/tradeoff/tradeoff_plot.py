"""The plot of a trade-off."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from otel_memwatch.compat.nncf.tradeoff.variants import Tradeoff, Variant


class _MarkerSeries(NamedTuple):
    colour: str
    label: str
    offset: tuple[int, int]
    """Distance from a marker to its annotation, in points."""
    variants: list[Variant]


def figure(tradeoff: Tradeoff) -> Figure:
    """Return the scatter plot of all compressed variants, without the fp32 and int8 rows. Does not change global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 4.8), dpi=100)
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    lora = [variant for variant in tradeoff.variants if variant.row.rank is not None]
    gptq = [variant for variant in tradeoff.variants if "gptq" in variant.row.mode]
    data_free = [variant for variant in tradeoff.variants if variant.row.mode == "int4"]
    drawn_otherwise = {"fp32", "int8", "int4"}
    rest = [
        v
        for v in tradeoff.variants
        if v.row.mode not in drawn_otherwise and v not in lora and v not in gptq and "fp32" not in v.row.mode
    ]
    algorithm = rest[0].row.mode.rpartition("int4 + ")[2] if rest else ""
    with_algorithm = f" + {algorithm}" if algorithm else ""
    markers = [
        _MarkerSeries("r", f"100% int4, lora correction{with_algorithm}", (10, -10), lora),
        _MarkerSeries("green", f"100% int4, gptq{with_algorithm}", (10, 2), gptq),
        _MarkerSeries("gray", "100% int4, data-free", (0, -10), data_free),
        _MarkerSeries("b", f"mixed-precision, {algorithm}", (10, -10), rest),
    ]
    for series in markers:
        if series.variants:
            _draw(axes, series)
    what = "Peak memory" if tradeoff.measured else "Compression"
    axes.set_xlabel("Relative error to fp32 model on 3 tasks, %")
    axes.set_ylabel(
        f"{what} reduction relative to fp32 model"
        if tradeoff.measured
        else f"{what} rate relative to fp32 model"
    )
    axes.set_title(f"Footprint/Accuracy tradeoff for {_plain(tradeoff.model)}")
    if axes.lines:
        axes.legend()
    return drawn


def _draw(axes: Axes, series: _MarkerSeries) -> None:
    errors = [variant.error * 100 for variant in series.variants]
    rates = [variant.rate for variant in series.variants]
    axes.plot(errors, rates, "o-", color=series.colour, label=_plain(series.label))
    spread = [
        (v, [[v.rate - v.low], [v.high - v.rate]])
        for v in series.variants
        if v.high > v.low and math.isfinite(v.high)
    ]
    for variant, reach in spread:
        # Certain range of a measured peak, if it is not exact.
        axes.errorbar(
            [variant.error * 100], [variant.rate], yerr=reach, color=series.colour, alpha=0.4, capsize=3
        )
    for variant, error in zip(series.variants, errors, strict=True):
        if variant.row.name:
            axes.annotate(
                _plain(variant.row.name),
                (error, variant.rate),
                textcoords="offset points",
                xytext=series.offset,
                ha="center",
            )


def _plain(text: str) -> str:
    """Return text that matplotlib does not parse as a formula."""
    return text.replace("$", r"\$")

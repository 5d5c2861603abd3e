"""Picture of a run: memory, CPU, I/O and GPUs over time, operations in lanes above, the peak with its certainty.

It uses matplotlib's objects without pyplot: no window opens, and no global setting changes.
"""

from __future__ import annotations

import io
import re

from otel_memwatch.errors import UsageError
from otel_memwatch.reports import picture_format
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

STYLES = ("memory",)

_RANDOM_NAME = re.compile(rb'\bid="([a-z]*[0-9a-f]{10})"')
_NAMED = re.compile(rb"(?<=[\"#])[a-z]*[0-9a-f]{10}(?=[\")])")


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the picture in the format of `options["suffix"]`: ".png" (the default), ".pdf" or ".svg"."""
    form = picture_format(options)
    style = options.get("style") or STYLES[0]
    if style not in STYLES:
        raise UsageError(f"Unknown plot style {style!r}.", "available: " + ", ".join(STYLES))
    drawn = figure(run, options)
    # Without dates and random names the bytes are the same for the same run.
    canvas: Any
    buffer = io.BytesIO()
    if form == "pdf":
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        canvas = FigureCanvasPdf(drawn)
        canvas.print_pdf(buffer, metadata={"CreationDate": None})
    elif form == "svg":
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        canvas = FigureCanvasSVG(drawn)
        canvas.print_svg(buffer, metadata={"Date": None})
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(drawn)
        canvas.print_png(buffer)
    image = buffer.getvalue()
    if form == "svg":
        # Replace matplotlib's random ids by numbers.
        ids = dict.fromkeys(_RANDOM_NAME.findall(image))
        names = {name: b"n%d" % number for number, name in enumerate(ids)}
        image = _NAMED.sub(lambda found: names.get(found[0], found[0]), image)
    out.write(image)


def figure(run: RecordedRun, options: Options | None = None) -> Figure:
    """Return the picture as a matplotlib figure without a window; `options["others"]` adds runs to it."""
    if options and options.get("others"):
        from otel_memwatch.reports.plot.overlay import overlay

        return overlay([run, *options["others"]], options)
    from otel_memwatch.reports.plot.picture import picture

    return picture(run, options)

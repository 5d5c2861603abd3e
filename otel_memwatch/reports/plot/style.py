"""Colours, fonts and axes of the plot, all set explicitly: it neither uses nor changes matplotlib's settings.

Colour-blind people can distinguish the colours: lines use the palette of Okabe and Ito, areas Tol's light scheme.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FuncFormatter, MaxNLocator

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.text import Text

BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE, YELLOW = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#F0E442",
)  # fmt: skip
INK, SOFT, FAINT, PAPER = "#222222", "#666666", "#DDDDDD", "#FFFFFF"
DEVICES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
AREAS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
ON_AREA = "on-area"
"""Group id of text on an area: its colour is the same on light and dark backgrounds."""
MIXED = "#CCCCCC"
"""Colour of a bar for operations with several names."""

FAMILY = "DejaVu Sans"
"""Font family; matplotlib includes it."""
SMALL, NORMAL, LARGE = 8.5, 9.5, 13.0
_LEAST_LETTERS = 4
_MOST_LETTERS = 1000
"""Most characters of a text to lay out: more than fit across a picture."""
_LETTERS, _WIDTH, _HANDLE = 135, 12.0, 6
"""Characters that fit above a panel, the picture's width for that in inches, and the width of a legend's line in characters."""
CUT = "\u2026"
"""Last character of a truncated text."""

_DARK = {
    INK: "#E8E8E8", SOFT: "#A8A8A8", FAINT: "#3A3A3A", PAPER: "#1B1B1D", MIXED: "#707070",
    BLUE: "#3A8FD6", SKY: "#A6D8F5", GREEN: "#2FC79A", PURPLE: "#E2A0C8",
}  # fmt: skip
"""Replacements of colours on a dark background; other colours are light enough."""


def darken(figure: Figure) -> None:
    """Replace the colours of a finished figure by those for a dark background."""
    table = {to_rgb(light): to_rgb(dark) for light, dark in _DARK.items()}
    for artist in figure.findobj(lambda one: one.get_gid() != ON_AREA):
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if get is None or put is None:
                continue
            rows = to_rgba_array(get()).tolist()
            colours: Any = [(*table.get(tuple(row[:3]), tuple(row[:3])), row[3]) for row in rows]
            if len(colours) == 1:
                put(colours[0])
            elif colours:
                put(colours)
    for axes in figure.axes:
        axes.tick_params(which="both", color=_DARK[SOFT], labelcolor=_DARK[INK])
        if axes.axison:
            axes.grid(visible=True, which="major", color=_DARK[FAINT])


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family=FAMILY))).get_charmap())


def lettering(text: str) -> str:
    """Return text that matplotlib shows unchanged: no formulas, and a box for characters that the font lacks."""
    glyphs = _glyphs()
    shown = "".join(c if ord(c) in glyphs else "\u25a1" for c in clean(text))
    return shown.replace("$", r"\$")


def font(size: float = SMALL, *, bold: bool = False) -> FontProperties:
    """Return the font of all text except the numbers at the axes."""
    return FontProperties(family=FAMILY, size=size, weight="bold" if bold else "normal", style="normal")


def fitted(
    artist: Text, text: str, width: float, renderer: RendererAgg, cut: Callable[[str, int], str] = shorten
) -> bool:
    """Set `text` on the artist, cut to at most `width` pixels. Return whether anything fits."""
    kept = min(len(text), _MOST_LETTERS)
    while kept > 0:
        artist.set_text(lettering(cut(text, kept)))
        taken = artist.get_window_extent(renderer).width
        if taken <= width:
            return True
        if kept <= _LEAST_LETTERS:
            break
        kept = max(_LEAST_LETTERS, min(kept - 1, int(kept * width / taken)))
    artist.set_text("")
    return False


def beginning(text: str, length: int) -> str:
    """Return the beginning of a text that is too long; it distinguishes short names best."""
    return text if len(text) <= length else text[: length - 1] + CUT


def new_figure(width: float, height: float, dpi: int) -> Figure:
    """Return an empty figure of this size in inches, with a canvas that measures text."""
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor=PAPER, edgecolor=PAPER)
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes, title: str, unit: str, remark: str = "") -> None:
    """Format a panel: title and remark at the top left, a light grid, no frame on two sides."""
    axes.set_facecolor(PAPER)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_edgecolor(SOFT)
        spine.set_linewidth(0.8)
    axes.grid(visible=True, which="major", color=FAINT, linewidth=0.6, linestyle="-", alpha=1.0)
    axes.set_axisbelow(True)
    axes.tick_params(
        which="both", direction="out", length=3, width=0.8, color=SOFT, labelcolor=INK, labelsize=SMALL, labelfontfamily=FAMILY, pad=3,
        top=False, right=False, labeltop=False, labelright=False,
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, min_n_ticks=3, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    heading = axes.set_title(
        f"{title} ({unit})", loc="left", fontproperties=font(NORMAL, bold=True), color=INK, pad=5, y=1.0
    )
    if remark:
        axes.annotate(
            lettering(remark), (1.0, 0.0), (9, 0), xycoords=heading, textcoords="offset points", va="bottom", ha="left",
            fontproperties=font(), color=SOFT, annotation_clip=False,
        )  # fmt: skip


def time_axis(axes: Axes, unit: str) -> None:
    """Format and label the time axis below a panel."""
    axes.tick_params(labelbottom=True)
    steps = [1, 2, 3, 5, 6, 10] if unit == "h" else [1, 2, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=steps))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"time since the start ({unit})", fontproperties=font(NORMAL), color=INK, labelpad=3)


def write_into(axes: Axes, words: str) -> None:
    """Write into an empty panel why it is empty."""
    axes.text(
        0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=SOFT, fontproperties=font(NORMAL)
    )  # fmt: skip


def legend(axes: Axes, taken: int = 0) -> int:
    """Draw the legend above the panel to the right, outside the curves. Return its number of rows.

    `taken` characters are above the panel already, beside its title.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return 1
    # The panel is as wide as its figure; `room` is in characters.
    figure = axes.get_figure()
    room: float = _LETTERS
    if figure is not None:
        room *= float(figure.get_size_inches()[0]) / _WIDTH  # type: ignore[union-attr]
    rows = 1
    while rows < len(labels) and _letters(labels, rows) > room - taken:
        rows += 1
    columns = -(-len(labels) // rows)
    made = axes.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, frameon=False, prop=font(),
        labelcolor=INK, borderaxespad=0.1, borderpad=0.1, handlelength=1.6, handletextpad=0.5, columnspacing=1.4,
        numpoints=1, markerscale=1.0,
    )  # fmt: skip
    made.set_zorder(10)
    return rows


def _letters(labels: Sequence[str], rows: int) -> int:
    """Return the approximate width of a legend in characters. It fills columns in order, the first ones with one more."""
    columns = -(-len(labels) // rows)
    least, longer = divmod(len(labels), columns)
    starts = [column * least + min(column, longer) for column in range(columns + 1)]
    return sum(max(map(len, labels[first:end])) + _HANDLE for first, end in pairwise(starts))

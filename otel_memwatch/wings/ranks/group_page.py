"""Page of a group: one HTML file without scripts, with curves as SVG and the sections of `group_text`."""

from __future__ import annotations

import base64
import hashlib
import math

from otel_memwatch.reports.pages.html import HtmlPage
from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import duration, size
from otel_memwatch.wings.ranks import group_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.wings.ranks.rank_group import RankGroup

    Array = NDArray[np.float64]

POINTS = 600
LISTED = 2000
"""Maximum number of ranks in the table; the JSON has all."""
_WIDTH, _HEIGHT = 1000, 220
_LINES = 16
"""Maximum number of curves."""

_STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#666;--line:#ddd;--paper:#fff;--blue:#0072b2;--sky:#56b4e9;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--soft:#a8a8a8;--line:#3a3a3a;--paper:#1b1b1d;--blue:#3a8fd6;--bad:#ff8a80}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1060px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}
.more,dt{color:var(--soft)}.bad{color:var(--bad)}.strong{font-weight:600}
dl{display:grid;grid-template-columns:minmax(90px,150px) 1fr;gap:.2rem 1rem;margin:.4rem 0}dd{grid-column:2;margin:0;overflow-wrap:anywhere}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;border-left:1px solid var(--soft);border-bottom:1px solid var(--soft)}
.band{fill:var(--sky);opacity:.3}.curve{fill:none;stroke:var(--blue);stroke-width:1.5;vector-effect:non-scaling-stroke}
.rank{fill:none;stroke:var(--soft);stroke-width:1;opacity:.6;vector-effect:non-scaling-stroke}
"""


def html(group: RankGroup) -> str:
    """Return the page as text."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = HtmlPage()
    page.title(f"Group {group.name}")
    group_text.what_ran(group, page)
    page.section("Memory")
    group_text.memory(group, page)
    page.raw(_sum_picture(group))
    group_text.hosts(group, page, LISTED)
    page.section("Ranks")
    _, curves = group.rank_curves(POINTS // 2)
    drawn = sorted(curves, key=lambda one: -float(one[1].max()))[:_LINES]
    top = max((float(curve.max()) for _, curve in drawn), default=1.0) or 1.0
    shapes = "".join(
        tag("polyline", tag("title", escaped(rank.label)), points=_points(curve, top), class_="rank")
        for rank, curve in drawn
    )
    chosen = "" if len(curves) <= _LINES else f"the {_LINES} largest of {len(curves)}, "
    note = f"Memory of each rank: {chosen}scale up to {size(top)}"
    page.raw(_svg(shapes, note))
    page.paragraph(note)
    group_text.ranks(group, page, LISTED)
    group_text.earlier_attempts(group, page)
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{escaped(group.name)} - otel-memwatch</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
            page.text(),
            "</body>\n</html>\n",
        )
    )


def _sum_picture(group: RankGroup) -> str:
    seconds, bound, guess = group.sum_curve(POINTS)
    top = max(float(guess.max()), 1.0)
    shapes = ""
    if bound is not None:
        low, high = bound
        top = max(top, float(high[high < math.inf].max(initial=0.0)))
        band = _points(low, top) + " " + " ".join(reversed(_points(high, top).split(" ")))
        shapes = tag("polygon", "", points=band, class_="band")
    shapes += tag("polyline", "", points=_points(guess, top), class_="curve")
    words = f"Memory of all ranks: 0 to {duration(float(seconds[-1]))}, scale up to {size(top)}"
    return _svg(shapes, words) + tag("p", escaped(words), class_="more")


def _svg(shapes: str, words: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">{tag("title", escaped(words))}{shapes}</svg>'


def _points(values: Array, top: float) -> str:
    last = max(1, len(values) - 1)
    return " ".join(
        f"{_WIDTH * index / last:.1f},{_HEIGHT * (1 - min(1.0, value / top)):.1f}"
        for index, value in enumerate(values.tolist())
    )

"""A group as a page: one file that opens anywhere, without a network, without scripts, under a content security policy.

Curves are pictures in the page (SVG), whose points are few enough that a thousand ranks make half a megabyte.
"""

from __future__ import annotations

import base64
import hashlib
import math

from otel_memwatch.reports.html.markup import escaped, tag
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import certainty, clean, command_line, duration, peak_figure, peak_sentence, size
from otel_memwatch.wings.ranks.group_text import died_first, ended_badly, missing, together_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup

    Array = NDArray[np.float64]

POINTS = 600
LISTED = 2000
"""Ranks in the table: more are in the JSON."""
_WIDTH, _HEIGHT = 1000, 220
_LINES = 16
"""Ranks whose curves are drawn."""

_STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#666;--line:#ddd;--paper:#fff;--blue:#0072b2;--sky:#56b4e9;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--soft:#a8a8a8;--line:#3a3a3a;--paper:#1b1b1d;--blue:#3a8fd6;--bad:#ff8a80}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1060px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}
.soft{color:var(--soft)}.bad{color:var(--bad)}.big{font-size:1.7rem;font-weight:600}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;border-left:1px solid var(--soft);border-bottom:1px solid var(--soft)}
.band{fill:var(--sky);opacity:.3}.curve{fill:none;stroke:var(--blue);stroke-width:1.5;vector-effect:non-scaling-stroke}
.rank{fill:none;stroke:var(--soft);stroke-width:1;opacity:.6;vector-effect:non-scaling-stroke}
.bar{fill:var(--blue);opacity:.6}
"""


def page(group: RankGroup) -> str:
    """The page, as text."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{escaped(group.name)} - otel-memwatch</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
            *_head(group),
            *_together(group),
            *_hosts(group),
            *_ranks(group),
            "</body>\n</html>\n",
        )
    )


def _head(group: RankGroup) -> list[str]:
    ranks = f"{len(group.numbered)} of {group.size}" if group.size else str(len(group.numbered))
    lines = [
        tag("h1", f"Group {escaped(group.name)}"),
        tag("p", escaped(command_line(group.command)), class_="soft"),
        tag(
            "p",
            escaped(f"{ranks} ranks on {len(group.hosts)} hosts, {duration(group.seconds)}, {group.state}"),
        ),
    ]
    for label, words in (
        ("Missing", missing(group)),
        ("Died first", died_first(group)),
        ("Ended badly", ended_badly(group)),
    ):
        if words:
            lines.append(tag("p", tag("b", f"{label}: ") + escaped(words), class_="bad"))
    return [line + "\n" for line in lines]


def _together(group: RankGroup) -> list[str]:
    peak = group.together.peak
    seconds, bound, guess = group.sum_curve(POINTS)
    top = max(float(guess.max()), 1.0)
    shapes = ""
    if bound is not None:
        low, high = bound
        top = max(top, float(high[high < math.inf].max(initial=0.0)))
        band = _points(low, top) + " " + " ".join(reversed(_points(high, top).split(" ")))
        shapes = tag("polygon", "", points=band, class_="band")
    shapes += tag("polyline", "", points=_points(guess, top), class_="curve")
    return [
        tag("h2", "All together") + "\n",
        tag("p", escaped(peak_sentence(peak, source=False)), class_="big") + "\n",
        tag("p", escaped(together_words(group)), class_="soft") + "\n",
        _svg(shapes, f"Memory of all ranks over {duration(float(seconds[-1]))}, up to {size(top)}") + "\n",
        tag("p", escaped(f"0 to {duration(float(seconds[-1]))}; top: {size(top)}"), class_="soft") + "\n",
    ]


def _hosts(group: RankGroup) -> list[str]:
    hosts = sorted(group.together.hosts, key=lambda one: -one.low)
    if len(hosts) < 2:
        return []
    rows = [
        tag("td", escaped(host.host))
        + tag("td", str(host.runs), class_="n")
        + tag("td", escaped(size(host.low)), class_="n")
        + tag("td", escaped("-" if math.isinf(host.high) else size(host.high)), class_="n")
        for host in hosts[:LISTED]
    ]
    head = tag("th", "host") + "".join(
        tag("th", name, class_="n") for name in ("runs", "at least", "at most")
    )
    return [tag("h2", "Hosts, at one instant") + "\n", _table(head, rows)]


def _ranks(group: RankGroup) -> list[str]:
    _, curves = group.rank_curves(POINTS // 2)
    drawn = sorted(curves, key=lambda one: -float(one[1].max()))[:_LINES]
    top = max((float(curve.max()) for _, curve in drawn), default=1.0) or 1.0
    shapes = "".join(
        tag("polyline", tag("title", escaped(rank.label)), points=_points(curve, top), class_="rank")
        for rank, curve in drawn
    )
    largest = max((rank.peak.bytes for rank in group.ranks if rank.peak is not None), default=1) or 1
    head = "".join(
        tag("th", name, class_="n" if name in ("rank", "memory", "GPU") else None)
        for name in ("rank", "host", "memory", "certainty", "", "in", "GPU", "ended")
    )
    told = "" if len(curves) <= _LINES else f"the {_LINES} largest of {len(curves)}; "
    return [
        tag("h2", "Ranks") + "\n",
        _svg(shapes, f"Each rank's memory, up to {size(top)}") + "\n",
        tag("p", escaped(f"{told}top: {size(top)}"), class_="soft") + "\n",
        _table(head, [_row(rank, largest) for rank in group.ranks[:LISTED]]),
    ]


def _row(rank: Rank, largest: int) -> str:
    peak = rank.peak
    gpu = max((one.bytes for one in rank.run.peaks.gpu.values()), default=None)
    share = 0 if peak is None else round(100 * peak.bytes / largest, 1)
    bar = f'<svg viewBox="0 0 100 8" width="100" height="8" aria-hidden="true">{tag("rect", "", class_="bar", width=share, height=8)}</svg>'
    return (
        tag("td", "all" if rank.rank is None else str(rank.rank), class_="n")
        + tag("td", escaped(rank.host))
        + tag("td", escaped(peak_figure(peak)), class_="n")
        + tag("td", escaped(certainty(peak)))
        + tag("td", bar)
        + tag("td", escaped(peak.operation) if peak is not None and peak.operation else "")
        + tag("td", escaped(size(gpu)) if gpu is not None else "", class_="n")
        + tag("td", escaped(clean(rank.run.ending.reason)), class_="bad" if rank.died else None)
    )


def _table(head: str, rows: list[str]) -> str:
    body = "".join(tag("tr", row) + "\n" for row in rows)
    return tag("table", tag("thead", tag("tr", head)) + tag("tbody", body)) + "\n"


def _svg(shapes: str, words: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">{tag("title", escaped(words))}{shapes}</svg>'


def _points(values: Array, top: float) -> str:
    last = max(1, len(values) - 1)
    return " ".join(
        f"{_WIDTH * index / last:.1f},{_HEIGHT * (1 - min(1.0, value / top)):.1f}"
        for index, value in enumerate(values.tolist())
    )

"""Draw previews of the dashboards with matplotlib, from the same panels and queries and a Prometheus.

    python -m dashboards.previews --prometheus http://localhost:9090 --start UNIX --end UNIX [--run RUN]

They show the content of a panel, not the drawing of Grafana, and say so.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import textwrap
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dashboards.boards import boards
from dashboards.panels import Json
from dashboards.promql import filled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNIT_HEIGHT = 0.3
"""Inches per unit of the grid."""

WIDTH = 15.0
TALLEST = 46
"""Maximum height of a preview, in units of the grid."""

_BACK, _PANEL, _INK, _FAINT = "#111217", "#181b1f", "#d8d9da", "#6e7075"
_COLORS = (
    "#73bf69",
    "#f2cc0c",
    "#8ab8ff",
    "#ff780a",
    "#f2495c",
    "#b877d9",
    "#56a64b",
    "#fade2a",
    "#5794f2",
    "#ffa6b0",
)
_NAMED = {
    "green": "#73bf69",
    "red": "#f2495c",
    "yellow": "#f2cc0c",
    "blue": "#8ab8ff",
    "text": _INK,
    "purple": "#b877d9",
}


class PreviewSource(NamedTuple):
    """Prometheus, time range and run of the previews."""

    url: str
    start: float
    end: float
    run: str

    @property
    def step(self) -> float:
        """Seconds between points."""
        return max(1.0, (self.end - self.start) / 240)

    def fill(self, expression: str) -> str:
        """The expression with Grafana's variables filled in."""
        within, rate_interval = max(1, round(self.end - self.start)), max(4, round(4 * self.step))
        return filled(expression, f"{within}s", f"{rate_interval}s", run=self.run)

    def query(self, expression: str, *, instant: bool) -> list[Json]:
        """Series of the answer."""
        given: dict[str, Any] = {"query": self.fill(expression)}
        path = "query" if instant else "query_range"
        given |= {"time": self.end} if instant else {"start": self.start, "end": self.end, "step": self.step}
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - the person names it
            result: list[Json] = json.load(answer)["data"]["result"]
        return result


def legend(template: str, labels: Mapping[str, str]) -> str:
    """The name of a series."""
    if template == "__auto":
        return ", ".join(labels.values())
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template).strip()


_SCALES: dict[str, tuple[float, tuple[str, ...]]] = {
    "bytes": (1024, ("B", "KiB", "MiB", "GiB", "TiB")),
    "Bps": (1024, ("B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s")),
    "ops": (1000, ("/s", "k/s", "M/s")),
    "short": (1000, ("", " k", " M", " G")),
    "watt": (1000, (" W", " kW")),
    "joule": (1000, (" J", " kJ", " MJ")),
    "celsius": (1e9, (" °C",)),
}


def worded(value: float, unit: str) -> str:
    """Return a value roughly as Grafana formats it."""
    if not math.isfinite(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return (
            f"{value:.3g} s"
            if value < 120
            else f"{value / 60:.3g} min"
            if value < 7200
            else f"{value / 3600:.3g} h"
        )
    base, names = _SCALES[unit]
    place = 0
    while abs(value) >= base and place < len(names) - 1:
        value, place = value / base, place + 1
    return f"{value:.3g}{' ' if unit in {'bytes', 'Bps'} else ''}{names[place]}"


def level(value: float, thresholds: Json) -> str:
    """Colour of a value."""
    color = _INK
    for step in thresholds["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = _NAMED.get(step["color"], _INK)
    return color


def mapped(value: float, mappings: Sequence[Json]) -> tuple[str, str] | None:
    """Return text and colour for a value."""
    for mapping in mappings:
        options = mapping["options"]
        if mapping["type"] == "range" and options["from"] <= value <= options["to"]:
            return options["result"]["text"], _NAMED.get(options["result"]["color"], _INK)
        if mapping["type"] == "value" and f"{value:g}" in options:
            found = options[f"{value:g}"]
            return found["text"], _NAMED.get(found["color"], _INK)
    return None


def _nothing(axes: Axes, panel: Json) -> None:
    words = panel["fieldConfig"]["defaults"]["noValue"]
    axes.text(0.5, 0.45, words, color=_FAINT, ha="center", va="center", transform=axes.transAxes, fontsize=11)
    axes.axis("off")


def _timeseries(axes: Axes, panel: Json, source: PreviewSource) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    lines: list[tuple[str, list[float], list[float]]] = []
    for target in panel["targets"]:
        for series in source.query(target["expr"], instant=False):
            times = [float(time) - source.start for time, _ in series["values"]]
            values = [float(value) for _, value in series["values"]]
            if any(map(math.isfinite, values)):
                lines.append((legend(target["legendFormat"], series["metric"]), times, values))
    if not lines:
        _nothing(axes, panel)
        return
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    floor: dict[float, float] = {}
    for place, (name, times, values) in enumerate(lines[:14]):
        color, dashed = _COLORS[place % len(_COLORS)], False
        for override in panel["fieldConfig"]["overrides"]:
            if re.fullmatch(override["matcher"]["options"], name):
                color, dashed = _NAMED[override["properties"][3]["value"]["fixedColor"]], True
        shown = values
        if stacked and not dashed:
            shown = [value + floor.get(time, 0.0) for time, value in zip(times, values, strict=True)]
            axes.fill_between(
                times, [floor.get(time, 0.0) for time in times], shown, color=color, alpha=0.3, linewidth=0
            )
            floor.update(zip(times, shown, strict=True))
        axes.plot(
            times,
            shown,
            color=color,
            linewidth=1.1,
            linestyle="--" if dashed else "-",
            label=name,
            marker="." if len(times) < 4 else "",
            markersize=3,
        )
    axes.set_xlim(0, source.end - source.start)
    _axis(axes, defaults["unit"])
    axes.legend(fontsize=5.5, loc="upper left", ncols=2, frameon=False, labelcolor=_INK)
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.25, 1e-9))


def _axis(axes: Axes, unit: str) -> None:
    axes.tick_params(colors=_FAINT, labelsize=6, length=0)
    axes.grid(color="#2c2f33", linewidth=0.5)
    axes.yaxis.set_major_formatter(lambda value, _: worded(value, unit))
    axes.xaxis.set_major_formatter(lambda value, _: worded(value, "s"))
    for spine in axes.spines.values():
        spine.set_visible(False)


def _stat(axes: Axes, panel: Json, source: PreviewSource) -> None:
    target, defaults = panel["targets"][0], panel["fieldConfig"]["defaults"]
    found = source.query(target["expr"], instant=True)
    if not found:
        _nothing(axes, panel)
        return
    for place, series in enumerate(found[:2]):
        value = float(series["value"][1])
        stands = mapped(value, defaults["mappings"])
        text, color = stands or (worded(value, defaults["unit"]), level(value, defaults["thresholds"]))
        y = 0.45 if len(found) == 1 else 0.65 - 0.4 * place
        axes.text(
            0.5,
            y,
            text,
            color=color,
            ha="center",
            va="center",
            transform=axes.transAxes,
            fontsize=15,
            weight="bold",
        )
        if len(found) > 1 or "{{" in target["legendFormat"]:
            name = legend(target["legendFormat"], series["metric"])
            axes.text(
                0.5,
                y - 0.24,
                name,
                color=_FAINT,
                ha="center",
                va="center",
                transform=axes.transAxes,
                fontsize=7,
            )
    axes.axis("off")


def _bars(axes: Axes, panel: Json, source: PreviewSource) -> None:
    target, defaults = panel["targets"][0], panel["fieldConfig"]["defaults"]
    found = sorted(source.query(target["expr"], instant=True), key=lambda series: -float(series["value"][1]))[
        :10
    ]
    if not found:
        _nothing(axes, panel)
        return
    names = [legend(target["legendFormat"], series["metric"])[:44] for series in found]
    values = [float(series["value"][1]) for series in found]
    axes.barh(
        range(len(found)),
        values,
        color=[level(value, defaults["thresholds"]) for value in values],
        height=0.6,
    )
    axes.set_yticks(
        range(len(found)),
        [f"{name}  {worded(value, defaults['unit'])}" for name, value in zip(names, values, strict=True)],
    )
    axes.invert_yaxis()
    axes.set_xlim(0, defaults.get("max") or max(*values, 1e-9) * 1.05)
    axes.tick_params(colors=_INK, labelsize=6.5, length=0)
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _table(axes: Axes, panel: Json, source: PreviewSource) -> None:
    from matplotlib.transforms import Bbox

    names = panel["transformations"][1]["options"]["renameByName"]
    units = {o["matcher"]["options"]: o["properties"] for o in panel["fieldConfig"]["overrides"]}
    labels = [name for name in names if not name.startswith("Value #")]
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    for target in panel["targets"]:
        for series in source.query(target["expr"], instant=True):
            key = tuple(series["metric"].get(label, "") for label in labels)
            rows.setdefault(key, {})[target["refId"]] = float(series["value"][1])
    axes.axis("off")
    if not rows:
        _nothing(axes, panel)
        return
    letters = [target["refId"] for target in panel["targets"]]
    ordered = sorted(rows.items(), key=lambda row: -row[1].get("A", -1.0))[: 2 * panel["gridPos"]["h"] // 3]
    text = [
        [
            *key,
            *(
                worded(row[letter], units[f"Value #{letter}"][0]["value"]) if letter in row else "unknown"
                for letter in letters
            ),
        ]
        for key, row in ordered
    ]
    header = [
        textwrap.fill(names[name], 16) for name in (*labels, *(f"Value #{letter}" for letter in letters))
    ]
    height = min(1.0, (len(text) + 1.6) * 0.085 * 12 / panel["gridPos"]["h"])
    table = axes.table(
        text,
        colLabels=header,
        bbox=Bbox.from_bounds(0.0, 1.0 - height, 1.0, height),
        edges="horizontal",
        cellLoc="left",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(6.5)
    for (row, _), cell in table.get_celld().items():
        cell.get_text().set_color(_FAINT if row == 0 else _INK)
        cell.set_edgecolor("#2c2f33")


def _heatmap(axes: Axes, panel: Json, source: PreviewSource) -> None:
    import numpy as np

    found = {
        float(s["metric"]["le"]): s["values"]
        for s in source.query(panel["targets"][0]["expr"], instant=False)
    }
    if not found:
        _nothing(axes, panel)
        return
    bounds = sorted(found)
    times = sorted({float(time) for values in found.values() for time, _ in values})
    grid = np.zeros((len(bounds), len(times)))
    for row, bound in enumerate(bounds):
        column = {float(time): float(value) for time, value in found[bound]}
        grid[row] = [column.get(time, 0.0) for time in times]
    counts = np.diff(grid, axis=0, prepend=0.0)
    used = [row for row in range(len(bounds)) if counts[row].any()]
    if not used:
        _nothing(axes, panel)
        return
    low, high = max(0, used[0] - 1), min(len(bounds), used[-1] + 2)
    axes.imshow(
        np.where(counts > 0, counts, np.nan)[low:high], aspect="auto", origin="lower", cmap="viridis", interpolation="nearest",
        extent=(times[0] - source.start - source.step / 2, times[-1] - source.start + source.step / 2, 0, high - low),
    )  # fmt: skip
    unit = panel["fieldConfig"]["defaults"]["unit"]
    _axis(axes, "short")
    axes.set_yticks(range(1, high - low + 1), [worded(bound, unit) for bound in bounds[low:high]])


_DRAW = {"timeseries": _timeseries, "stat": _stat, "bargauge": _bars, "table": _table, "heatmap": _heatmap}


def draw(board: Json, source: PreviewSource) -> Figure:
    """Draw the upper part of a dashboard."""
    from matplotlib.figure import Figure

    panels = [panel for panel in board["panels"] if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= TALLEST]
    while panels and panels[-1]["type"] == "row":
        panels.pop()
    units = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 2
    figure = Figure(figsize=(WIDTH, units * UNIT_HEIGHT), facecolor=_BACK)
    title = f"{board['title']}: a preview, drawn with matplotlib from the dashboard's own queries; Grafana draws it in its way"
    figure.text(0.01, 1 - 0.9 / units, title, color=_INK, fontsize=10, weight="bold")
    for panel in panels:
        place = panel["gridPos"]
        top = 1 - (place["y"] + 2) / units
        if panel["type"] == "row":
            figure.text(0.01, top - 0.75 / units, panel["title"], color=_INK, fontsize=9)
            continue
        left, width, height = place["x"] / 24, place["w"] / 24, place["h"] / units
        _frame(figure, (left, top - height, width, height), panel["title"], units)
        wide = panel["type"] in {"timeseries", "heatmap"}
        margin = 0.045 if wide else 0.01 if panel["type"] != "bargauge" else 0.2
        box = (
            left + margin,
            top - height + (0.9 if wide else 0.4) / units,
            width - margin - 0.012,
            height - (2.3 if wide else 1.7) / units,
        )
        axes = figure.add_axes(box, facecolor=_PANEL)
        _DRAW[panel["type"]](axes, panel, source)
    return figure


def _frame(figure: Figure, box: tuple[float, float, float, float], title: str, units: float) -> None:
    from matplotlib.patches import Rectangle

    x, y, width, height = box
    shape = Rectangle(
        (x + 0.002, y + 0.1 / units),
        width - 0.004,
        height - 0.2 / units,
        transform=figure.transFigure,
        color=_PANEL,
    )
    shape.set_zorder(-1)  # below the content
    figure.add_artist(shape)
    figure.text(x + 0.008, y + height - 0.95 / units, title, color=_INK, fontsize=7.5)


def main() -> None:
    """Write a PNG for each dashboard."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.previews", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--prometheus", default="http://localhost:9090")
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--run", default=".+", help="the run that the Run dashboard shows")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "previews")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    for name, board in boards().items():
        run = given.run if board["uid"] == "memwatch-run" else ".+"
        figure = draw(board, PreviewSource(given.prometheus.rstrip("/"), given.start, given.end, run))
        figure.savefig(given.out / name.replace(".json", ".png"), dpi=80)


if __name__ == "__main__":
    main()

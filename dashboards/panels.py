"""Panels of Grafana's classic JSON, as Grafana 10 to 13 import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dashboards.records import metrics_in
from otel_memwatch.catalog import METRICS, Profile

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

RED, YELLOW, GREEN, BLUE, GREY = "red", "yellow", "green", "blue", "text"


class Query(NamedTuple):
    """One target of a panel."""

    expression: str
    legend: str = "__auto"
    exemplar: bool = False


class Panel(NamedTuple):
    """A panel before it has a place."""

    title: str
    width: int
    height: int
    body: Json


def _targets(queries: Sequence[Query], *, instant: bool, form: str) -> list[Json]:
    return [
        {
            "datasource": DATASOURCE,
            "refId": chr(ord("A") + place),
            "expr": query.expression,
            "legendFormat": query.legend,
            "instant": instant,
            "range": not instant,
            "format": form,
            "exemplar": query.exemplar,
        }
        for place, query in enumerate(queries)
    ]


def _description(words: str, queries: Sequence[Query]) -> str:
    """Return the panel's description, then the catalogue's text for each metric in it."""
    lines = [words]
    for name in metrics_in(" ".join(query.expression for query in queries)):
        row = METRICS[name]
        needs = "Only with --metrics all." if row.profile is Profile.ALL else ""
        lines.append(" ".join(filter(None, (f"- `{name}`: {row.description}", row.note, needs))))
    return "\n".join(lines)


def _steps(levels: Sequence[tuple[float | None, str]]) -> Json:
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in levels]}


def _panel(kind: str, title: str, words: str, queries: Sequence[Query], **more: Any) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": _description(words, queries),
        "datasource": DATASOURCE,
        **more,
    }


def dashed(legend: str, color: str) -> Json:
    """An override that draws one series as a dashed line without fill: a limit, or a peak."""
    return {
        "matcher": {"id": "byRegexp", "options": legend},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.stacking", "value": {"group": "A", "mode": "none"}},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": color}},
        ],
    }


def timeseries(
    title: str,
    unit: str,
    words: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    overrides: Sequence[Json] = (),
    maximum: float | None = None,
) -> Panel:
    """Curves over time; the legend shows the last and the largest value."""
    defaults: Json = {
        "unit": unit,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "noValue": "no data",
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if stacked else 8,
            "showPoints": "auto",
            # A gap is a time without a sample; do not connect across it.
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        },
    }
    if maximum is not None:
        defaults["custom"]["axisSoftMax"] = maximum
    body = _panel(
        "timeseries",
        title,
        words,
        queries,
        targets=_targets(queries, instant=False, form="time_series"),
        fieldConfig={"defaults": defaults, "overrides": list(overrides)},
        options={
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )
    return Panel(title, width, height, body)


def stat(
    title: str,
    unit: str,
    words: str,
    query: Query,
    *,
    unknown: str,
    levels: Sequence[tuple[float | None, str]] = ((None, BLUE),),
    mappings: Sequence[Json] = (),
    width: int = 4,
) -> Panel:
    """One figure. `unknown` is the text without a value; it must not suggest that all is well."""
    body = _panel(
        "stat",
        title,
        words,
        [query],
        targets=_targets([query], instant=True, form="time_series"),
        fieldConfig={
            "defaults": {
                "unit": unit,
                "noValue": unknown,
                "color": {"mode": "thresholds"},
                "thresholds": _steps(levels),
                "mappings": list(mappings),
            },
            "overrides": [],
        },
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "auto",
            "justifyMode": "auto",
            "orientation": "auto",
        },
    )
    return Panel(title, width, 4, body)


def bars(
    title: str,
    unit: str,
    words: str,
    query: Query,
    *,
    levels: Sequence[tuple[float | None, str]] = ((None, BLUE),),
    maximum: float | None = None,
    width: int = 12,
    links: Sequence[Json] = (),
) -> Panel:
    """A ranking as horizontal bars."""
    defaults: Json = {
        "unit": unit,
        "min": 0,
        "noValue": "no data",
        "color": {"mode": "thresholds"},
        "thresholds": _steps(levels),
        "links": list(links),
    }
    if maximum is not None:
        defaults["max"] = maximum
    body = _panel(
        "bargauge",
        title,
        words,
        [query],
        targets=_targets([query], instant=True, form="time_series"),
        fieldConfig={"defaults": defaults, "overrides": []},
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "displayMode": "basic",
            "orientation": "horizontal",
            "showUnfilled": True,
            "valueMode": "color",
        },
    )
    return Panel(title, width, 9, body)


class TableColumn(NamedTuple):
    """A column of a table: a query with its heading and unit."""

    title: str
    unit: str
    expression: str
    levels: Sequence[tuple[float | None, str]] = ()


def table(
    title: str,
    words: str,
    labels: Mapping[str, str],
    *columns: TableColumn,
    width: int = 24,
    height: int = 9,
    links: Mapping[str, Json] | None = None,
) -> Panel:
    """Rows of label values with one column for each query, sorted by the first.

    Args:
        title: heading.
        words: description.
        labels: heading of each visible label.
        columns: queries, all with the same labels.
        width: of 24.
        height: in grid units.
        links: target of a click on a label's value.

    """
    queries = [Query(column.expression) for column in columns]
    letters = [chr(ord("A") + place) for place in range(len(columns))]
    overrides = [
        _table_column(f"Value #{letter}", column) for letter, column in zip(letters, columns, strict=True)
    ]
    for label, link in (links or {}).items():
        overrides.append(
            {
                "matcher": {"id": "byName", "options": labels[label]},
                "properties": [{"id": "links", "value": [link]}],
            }
        )
    names = dict(labels) | {
        f"Value #{letter}": column.title for letter, column in zip(letters, columns, strict=True)
    }
    order = {name: place for place, name in enumerate(names)}
    body = _panel(
        "table",
        title,
        words,
        queries,
        targets=_targets(queries, instant=True, form="table"),
        fieldConfig={
            "defaults": {"noValue": "unknown", "custom": {"align": "auto", "filterable": True}},
            "overrides": overrides,
        },
        options={"showHeader": True, "sortBy": [{"displayName": columns[0].title, "desc": True}]},
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
            },
        ],
    )
    return Panel(title, width, height, body)


def _table_column(field: str, column: TableColumn) -> Json:
    properties: list[Json] = [
        {"id": "unit", "value": column.unit},
        {"id": "displayName", "value": column.title},
    ]
    if column.levels:
        properties += [
            {"id": "thresholds", "value": _steps(column.levels)},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    return {"matcher": {"id": "byName", "options": field}, "properties": properties}


def heatmap(title: str, unit: str, words: str, query: Query, *, width: int = 12) -> Panel:
    """A histogram over time, with exemplars that link to traces."""
    body = _panel(
        "heatmap",
        title,
        words,
        [query],
        targets=_targets([query], instant=False, form="heatmap"),
        fieldConfig={"defaults": {"unit": unit, "noValue": "no data"}, "overrides": []},
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Spectral", "steps": 64, "reverse": True},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "showColorScale": True},
            "yAxis": {"axisPlacement": "left", "unit": unit},
            "cellValues": {"unit": "short"},
        },
    )
    return Panel(title, width, 9, body)

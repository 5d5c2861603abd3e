"""A dashboard: variables, links, annotations, and the layout of panels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from dashboards.panels import DATASOURCE, Json, Panel
from dashboards.promql import DASHBOARD, FLEET, OURS, PLACE
from dashboards.records import BRANCH, CI_LARGEST, OPERATION, OPERATION_PEAK

WIDTH = 24
TAG = "otel-memwatch"
SCHEMA_VERSION = 38
"""Schema of Grafana 10.0; newer versions migrate it when they load it."""


class Row(NamedTuple):
    """A heading with its panels, laid out from left to right."""

    title: str
    panels: Sequence[Panel]


def _variable(name: str, label: str, kind: str, **more: Any) -> Json:
    return {"name": name, "label": label, "type": kind, "hide": 0, "skipUrlSync": False, **more}


def _query_variable(
    name: str, label: str, query: str, *, several: bool = True, everything: str | None = ".+"
) -> Json:
    """A variable. `everything` is the expression for all: `.*` if series may lack the label; `None` disables this choice."""
    more: Json = {"multi": several, "includeAll": several and everything is not None}
    if more["includeAll"]:
        more |= {"allValue": everything, "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return _variable(
        name,
        label,
        "query",
        datasource=DATASOURCE,
        query={"query": query, "refId": f"variable-{name}"},
        definition=query,
        # Refresh when the time range changes, because runs come and go.
        refresh=2,
        sort=1,
        regex="",
        options=[],
        **more,
    )


def _datasource(name: str, label: str, kind: str) -> Json:
    return _variable(
        name,
        label,
        "datasource",
        query=kind,
        refresh=1,
        regex="",
        multi=False,
        includeAll=False,
        options=[],
        current={},
    )


def fleet_variables(*more: Json) -> list[Json]:
    """Variables that select many runs: data source, cluster, namespace and service, then `more`."""
    place = ",".join(PLACE)
    cluster = _query_variable(
        "cluster", "Cluster", "label_values(memwatch_run_active, cluster)", everything=".*"
    )
    namespace = _query_variable(
        "namespace",
        "Namespace",
        f"label_values(memwatch_run_active{{{PLACE[0]}}}, namespace)",
        everything=".*",
    )
    service = _query_variable("service", "Service", f"label_values(memwatch_run_active{{{place}}}, job)")
    return [_datasource("datasource", "Data source", "prometheus"), cluster, namespace, service, *more]


def variables(*more: Json, one_run: bool = False, all_runs: bool = True) -> list[Json]:
    """Variables of a fleet, traces, host and run, then `more`. Without `all_runs`, runs must be named."""
    scope = ",".join((*FLEET, OURS))
    host = _query_variable("host", "Host", f"label_values(target_info{{{scope}}}, host_name)")
    # Without target_info, hosts are unknown, but runs are not.
    runs = f'{scope},host_name=~"$host"'
    run = _query_variable(
        "run",
        "Run",
        f"label_values(target_info{{{runs}}}, instance)",
        several=not one_run,
        everything=".+" if all_runs else None,
    )
    return fleet_variables(_datasource("traces", "Traces", "tempo"), host, run, *more)


def text_variable(name: str, label: str, default: str) -> Json:
    """A text field."""
    return _variable(
        name,
        label,
        "textbox",
        query=default,
        current={"selected": True, "text": default, "value": default},
        options=[{"selected": True, "text": default, "value": default}],
    )


def branch_variable() -> Json:
    """Choice of branches."""
    return _query_variable("branch", "Branch", f"label_values({CI_LARGEST}{{{','.join(FLEET)}}}, {BRANCH})")


def gpu_variable() -> Json:
    """Choice of GPUs."""
    return _query_variable(
        "gpu", "GPU", f"label_values(hw_gpu_memory_limit_bytes{{{','.join(DASHBOARD)}}}, hw_id)"
    )


def operation_variable() -> Json:
    """Choice of operations."""
    metric = f"{OPERATION_PEAK}{{{','.join(FLEET)}}}"
    return _query_variable("operation", "Operation", f"label_values({metric}, {OPERATION})")


def annotation(name: str, expression: str, title: str, text: str, color: str, *, step: str = "10s") -> Json:
    """Moments or periods with values of an expression."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expression,
        "step": step,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "",
        "useValueForTime": False,
    }


def traces_link() -> Json:
    """Link to the run's traces: by its id, or by its pod if the run was scraped and is named after the pod."""
    query = '{ resource.service.instance.id = "${run}" || resource.k8s.pod.name = "${run}" }'
    panes = {
        "traces": {
            "datasource": "${traces}",
            "queries": [
                {
                    "refId": "A",
                    "datasource": {"type": "tempo", "uid": "${traces}"},
                    "queryType": "traceql",
                    "query": query,
                }
            ],
            "range": {"from": "${__from}", "to": "${__to}"},
        }
    }
    # Grafana fills in variables before it opens the link; do not encode their braces.
    address = quote(json.dumps(panes, separators=(",", ":")), safe="${}_:,")
    return {
        "title": "Traces of this run",
        "type": "link",
        "icon": "external link",
        "url": f"/explore?schemaVersion=1&panes={address}",
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
        "tags": [],
        "asDropdown": False,
        "tooltip": "TraceQL in the data source chosen above",
    }


def run_link(run: str = "${__field.labels.instance}") -> Json:
    """A data link to the dashboard of one run."""
    return {
        "title": "Open this run",
        "url": f"/d/memwatch-run?var-datasource=${{datasource}}&var-run={run}&${{__url_time_range}}",
        "targetBlank": False,
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for row in rows:
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        placed.append({**heading, "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        y += 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            placed.append({**panel.body, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}})
            x += panel.width
            tallest = max(tallest, panel.height)
        y += tallest
    return [{"id": place, **panel} for place, panel in enumerate(placed, start=1)]


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    templates: Sequence[Json],
    *,
    annotations: Sequence[Json] = (),
    links: Sequence[Json] = (),
    since: str = "now-6h",
    refresh: str = "30s",
) -> Json:
    """The whole of a dashboard's JSON."""
    others = {
        "title": "otel-memwatch",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        # One crosshair over all panels.
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": since, "to": "now"},
        "refresh": refresh,
        "templating": {"list": list(templates)},
        "annotations": {"list": list(annotations)},
        "links": [others, *links],
        "panels": _placed(rows),
    }

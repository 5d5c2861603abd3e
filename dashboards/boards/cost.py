"""Cost: requested memory over time, the part that was needed, and the services with unused memory."""

from __future__ import annotations

from dashboards.board import Row, dashboard, fleet_variables, text_variable
from dashboards.boards.shared import SHARE_LEVELS, TOP
from dashboards.panels import BLUE, YELLOW, Json, Panel, Query, TableColumn, bars, stat, table, timeseries
from dashboards.promql import JOB, recorded
from dashboards.records import NEEDED_BYTES, REQUESTED_BYTES, USED_BYTES

_GIB = 1 << 30
_NO_LIMIT = "no run has a limit"
_ASKED = (
    "The request is the limit of a run's cgroup, while the run reports that it is active. Runs without a limit are in none of these "
    "panels. For a run shorter than its reporting interval, only the end is known."
)


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-cost",
        "otel-memwatch / Cost",
        "GiB-hours that jobs requested, needed and used, and the limits that you can lower.",
        [Row("In this time", _totals()), Row("By service", _services()), Row("Over time", _over_time())],
        fleet_variables(text_variable("price", "Price of a GiB-hour", "1")),
        since="now-7d",
        refresh="5m",
    )


def _gib_hours(name: str) -> str:
    """GiB-hours of each service in the dashboard's time range: the sum of the recorded bytes of each minute."""
    return f"sum_over_time({recorded(name)}[$__range:1m]) / {60 * _GIB}"


def _not_needed() -> str:
    return f"({_gib_hours(REQUESTED_BYTES)} - {_gib_hours(NEEDED_BYTES)})"


def _totals() -> list[Panel]:
    asked, needed, used = (_gib_hours(name) for name in (REQUESTED_BYTES, NEEDED_BYTES, USED_BYTES))
    return [
        stat("GiB-hours requested", "short", _ASKED, Query(f"sum ({asked})", "requested"), unknown=_NO_LIMIT),
        stat(
            "GiB-hours needed",
            "short",
            "GiB-hours if each run had always requested its peak so far.",
            Query(f"sum ({needed})", "needed"),
            unknown=_NO_LIMIT,
        ),
        stat(
            "GiB-hours used",
            "short",
            "Memory that counted against the limits at each moment.",
            Query(f"sum ({used})", "used"),
            unknown=_NO_LIMIT,
        ),
        stat(
            "GiB-hours never needed",
            "short",
            "Requested minus needed: the saving of lower limits, without a margin.",
            Query(f"sum ({_not_needed()})", "never needed"),
            unknown=_NO_LIMIT,
            levels=((None, YELLOW),),
        ),
        stat(
            "Needed share of the request",
            "percentunit",
            "Near 1, limits are tight; far below 1, they waste memory.",
            Query(f"sum ({needed}) / sum ({asked})", "needed"),
            unknown=_NO_LIMIT,
            levels=((None, BLUE), *SHARE_LEVELS[1:]),
        ),
        stat(
            "Price of unneeded memory",
            "short",
            "GiB-hours never needed, times the price of a GiB-hour set above; 1 means no price.",
            Query(f"sum ({_not_needed()}) * $price", "price"),
            unknown=_NO_LIMIT,
            levels=((None, YELLOW),),
        ),
    ]


def _services() -> list[Panel]:
    asked, needed = _gib_hours(REQUESTED_BYTES), _gib_hours(NEEDED_BYTES)
    return [
        bars(
            "GiB-hours never needed, by service",
            "short",
            "Services with the largest saving from a lower limit. otel-memwatch advise computes the limit from recorded runs.",
            Query(f"topk({TOP}, {_not_needed()})", "{{namespace}} {{job}}"),
        ),
        bars(
            "GiB-hours never needed, by namespace",
            "short",
            "The same for all services of a namespace, usually a team.",
            Query(f"topk({TOP}, sum by (cluster, namespace) ({_not_needed()}))", "{{cluster}} {{namespace}}"),
        ),
        table(
            "Services",
            "GiB-hours in the dashboard's time range.",
            {"cluster": "Cluster", "namespace": "Namespace", "job": "Service"},
            TableColumn("Never needed", "short", f"sum by ({JOB}) ({_not_needed()})"),
            TableColumn("Requested", "short", f"sum by ({JOB}) ({asked})"),
            TableColumn("Needed", "short", f"sum by ({JOB}) ({needed})"),
            TableColumn("Used", "short", f"sum by ({JOB}) ({_gib_hours(USED_BYTES)})"),
            TableColumn(
                "Needed share",
                "percentunit",
                f"sum by ({JOB}) ({needed}) / sum by ({JOB}) ({asked})",
                SHARE_LEVELS,
            ),
            height=12,
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        timeseries(
            "Requested, needed, used",
            "bytes",
            "Sums over active runs with a limit.",
            Query(f"sum ({recorded(REQUESTED_BYTES)})", "requested"),
            Query(f"sum ({recorded(NEEDED_BYTES)})", "needed at the peaks so far"),
            Query(f"sum ({recorded(USED_BYTES)})", "used"),
            height=9,
        ),
        timeseries(
            "Not needed, by service",
            "bytes",
            "Limits minus peaks so far, for the services with the largest difference.",
            Query(
                f"topk({TOP}, {recorded(REQUESTED_BYTES)} - {recorded(NEEDED_BYTES)})",
                "{{namespace}} {{job}}",
            ),
            stacked=True,
            height=9,
        ),
    ]

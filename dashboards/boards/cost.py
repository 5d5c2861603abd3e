"""Cost: memory asked for over time, what of it was needed, and who asked for what nobody used."""

from __future__ import annotations

from dashboards.board import Row, dashboard, fleet_variables, text_variable
from dashboards.boards.shared import SHARE_LEVELS, TOP
from dashboards.panels import BLUE, YELLOW, Json, Panel, Query, TableColumn, bars, stat, table, timeseries
from dashboards.promql import JOB, recorded
from dashboards.records import NEEDED_BYTES, REQUESTED_BYTES, USED_BYTES

_GIB = 1 << 30
_NO_LIMIT = "no run has a limit"
_ASKED = (
    "What is asked for is the limit of a run's control group, for as long as the run reports that it is active: runs without a limit "
    "are in none of these, and of a run that is shorter than the time between two of its reports nothing is known but its end."
)


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-cost",
        "otel-memwatch / Cost",
        "GiB-hours that jobs asked for, what of them was needed and used, and whose limits can be lowered.",
        [Row("In this time", _totals()), Row("By service", _services()), Row("Over time", _over_time())],
        fleet_variables(text_variable("price", "Price of a GiB-hour", "1")),
        since="now-7d",
        refresh="5m",
    )


def _gib_hours(name: str) -> str:
    """GiB-hours of each service within the dashboard's time: the recorded bytes of each minute, summed."""
    return f"sum_over_time({recorded(name)}[$__range:1m]) / {60 * _GIB}"


def _not_needed() -> str:
    return f"({_gib_hours(REQUESTED_BYTES)} - {_gib_hours(NEEDED_BYTES)})"


def _totals() -> list[Panel]:
    asked, needed, used = (_gib_hours(name) for name in (REQUESTED_BYTES, NEEDED_BYTES, USED_BYTES))
    return [
        stat("GiB-hours asked for", "short", _ASKED, Query(f"sum ({asked})", "asked for"), unknown=_NO_LIMIT),
        stat(
            "GiB-hours needed",
            "short",
            "As much as if each run had at every moment asked for its peak so far.",
            Query(f"sum ({needed})", "needed"),
            unknown=_NO_LIMIT,
        ),
        stat(
            "GiB-hours used",
            "short",
            "What counted against the limits, moment by moment.",
            Query(f"sum ({used})", "used"),
            unknown=_NO_LIMIT,
        ),
        stat(
            "GiB-hours never needed",
            "short",
            "Asked for less needed: what lower limits would have saved, a margin not counted.",
            Query(f"sum ({_not_needed()})", "never needed"),
            unknown=_NO_LIMIT,
            levels=((None, YELLOW),),
        ),
        stat(
            "Needed of what was asked for",
            "percentunit",
            "Near to 1 limits are tight; far below it they are waste.",
            Query(f"sum ({needed}) / sum ({asked})", "needed"),
            unknown=_NO_LIMIT,
            levels=((None, BLUE), *SHARE_LEVELS[1:]),
        ),
        stat(
            "Price of what was never needed",
            "short",
            "GiB-hours never needed, times the price of one that is set above; 1 is no price.",
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
            "Where lowering a limit pays most. otel-memwatch advise says to what, from the recorded runs.",
            Query(f"topk({TOP}, {_not_needed()})", "{{namespace}} {{job}}"),
        ),
        bars(
            "GiB-hours never needed, by namespace",
            "short",
            "The same for all services of a namespace: as a rule a team.",
            Query(f"topk({TOP}, sum by (cluster, namespace) ({_not_needed()}))", "{{cluster}} {{namespace}}"),
        ),
        table(
            "Services",
            "GiB-hours within the dashboard's time.",
            {"cluster": "Cluster", "namespace": "Namespace", "job": "Service"},
            TableColumn("Never needed", "short", f"sum by ({JOB}) ({_not_needed()})"),
            TableColumn("Asked for", "short", f"sum by ({JOB}) ({asked})"),
            TableColumn("Needed", "short", f"sum by ({JOB}) ({needed})"),
            TableColumn("Used", "short", f"sum by ({JOB}) ({_gib_hours(USED_BYTES)})"),
            TableColumn("Needed of it", "percentunit", f"sum by ({JOB}) ({needed} / {asked})", SHARE_LEVELS),
            height=12,
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        timeseries(
            "Asked for, needed, used",
            "bytes",
            "Sums over active runs that have a limit.",
            Query(f"sum ({recorded(REQUESTED_BYTES)})", "asked for"),
            Query(f"sum ({recorded(NEEDED_BYTES)})", "needed at the peaks so far"),
            Query(f"sum ({recorded(USED_BYTES)})", "used"),
            height=9,
        ),
        timeseries(
            "Not needed, by service",
            "bytes",
            "Limits less peaks so far, of the services with most of it.",
            Query(
                f"topk({TOP}, {recorded(REQUESTED_BYTES)} - {recorded(NEEDED_BYTES)})",
                "{{namespace}} {{job}}",
            ),
            stacked=True,
            height=9,
        ),
    ]

"""Groups: jobs of many ranks: memory of all ranks now, and the largest rank relative to the median."""

from __future__ import annotations

from dashboards.board import Row, dashboard, fleet_variables
from dashboards.boards.shared import ROWS, TOP
from dashboards.panels import (
    BLUE,
    GREEN,
    YELLOW,
    Json,
    Panel,
    Query,
    TableColumn,
    bars,
    stat,
    table,
    timeseries,
)
from dashboards.promql import recorded
from dashboards.records import (
    GROUP,
    GROUP_ID,
    GROUP_LARGEST,
    GROUP_MEDIAN,
    GROUP_RANKS,
    GROUP_USED,
    RANK,
    RANK_PEAK,
)
from dashboards.thresholds import RANKS_OF_MANY, RANKS_SHOWN

_LEGEND = f"{{{{job}}}} {{{{{GROUP_ID}}}}}"
_NO_GROUP = "no run reports its group"
_SKEWED = 1.5


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-groups",
        "otel-memwatch / Groups",
        "Jobs of many ranks: memory of all ranks now, the largest rank, and its peak relative to the median.",
        [Row("Now", _now()), Row("Together", _together()), Row("Ranks", _ranks())],
        fleet_variables(),
        since="now-6h",
        refresh="30s",
    )


def _skew() -> str:
    """Peak of each group's largest rank relative to its median."""
    return f"{recorded(GROUP_LARGEST)} / {recorded(GROUP_MEDIAN)}"


def _now() -> list[Panel]:
    return [
        stat(
            "Groups",
            "short",
            "Groups with active ranks. A group is the runs of one job on several ranks or hosts, named by the launcher.",
            Query(f"count ({recorded(GROUP_RANKS)} > 0)", "groups"),
            unknown=_NO_GROUP,
        ),
        stat(
            "Ranks active",
            "short",
            "Ranks that their monitor reports as active.",
            Query(f"sum ({recorded(GROUP_RANKS)})", "ranks"),
            unknown=_NO_GROUP,
        ),
        stat(
            "Largest group",
            "bytes",
            "Memory of all ranks of the largest group now, by the last sample of each. For their peak at one instant with its bounds, "
            "run `otel-memwatch report GROUP`.",
            Query(f"max ({recorded(GROUP_USED)})", "largest"),
            unknown=_NO_GROUP,
        ),
        stat(
            "Largest skew",
            "short",
            "Peak of a group's largest rank relative to the median. All ranks request memory for the largest one.",
            Query(f"max ({_skew()})", "skew"),
            unknown=_NO_GROUP,
            levels=((None, GREEN), (_SKEWED, YELLOW)),
        ),
    ]


def _together() -> list[Panel]:
    return [
        timeseries(
            "Memory of all ranks",
            "bytes",
            "Sum over the active ranks of each group.",
            Query(f"topk({TOP}, {recorded(GROUP_USED)})", _LEGEND),
        ),
        timeseries(
            "Ranks over time",
            "short",
            "Active ranks. If a curve falls, the group has lost a rank, or its ranks have ended.",
            Query(f"topk({TOP}, {recorded(GROUP_RANKS)})", _LEGEND),
        ),
        timeseries(
            "Largest rank and median",
            "bytes",
            "Peaks so far of each group.",
            Query(f"topk({TOP}, {recorded(GROUP_LARGEST)})", f"{_LEGEND} largest"),
            Query(f"topk({TOP}, {recorded(GROUP_MEDIAN)})", f"{_LEGEND} median"),
        ),
        bars(
            "Skew",
            "short",
            "Largest rank relative to the median.",
            Query(f"topk({TOP}, {_skew()})", _LEGEND),
            levels=((None, GREEN), (_SKEWED, YELLOW)),
        ),
    ]


def _ranks() -> list[Panel]:
    return [
        table(
            "Largest ranks",
            f"Peak of each rank in the dashboard's time range. For groups with more than {RANKS_SHOWN} ranks, only the {RANKS_OF_MANY} "
            "largest.",
            {"job": "Service", GROUP_ID: "Group", RANK: "Rank"},
            TableColumn(
                "Memory needed",
                "bytes",
                f"topk({ROWS}, max by ({GROUP}, {RANK}) (max_over_time({recorded(RANK_PEAK, window='$__range')})))",
                ((None, BLUE),),
            ),
            height=12,
        ),
    ]

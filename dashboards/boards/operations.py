"""Operations: how long, how much memory, and whether that changed with the version."""

from __future__ import annotations

from dashboards.board import Row, dashboard, operation_variable, variables
from dashboards.panels import (
    GREEN,
    RED,
    Json,
    Panel,
    Query,
    TableColumn,
    bars,
    heatmap,
    stat,
    table,
    timeseries,
)
from dashboards.promql import (
    RUN,
    last,
    quantile,
    series,
    so_far,
    with_info,
)

_NAME = "memwatch_operation_name"
_CHOSEN = f'{_NAME}=~"$operation"'
_DURATION = "memwatch.operation.duration"
_PEAK = "memwatch.operation.memory.peak"
_LARGEST = "memwatch.operation.memory.peak.max"
_COUNT = "memwatch.operation.count"
_TIME = "memwatch.operation.time"
_LEGEND = f"{{{{{_NAME}}}}}"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-operations",
        "otel-memwatch / Operations",
        "Named stretches of programs' work: durations and memory peaks, their spread, and versions side by side.",
        [
            Row("Now", _now()),
            Row("Over time", _over_time()),
            Row("Versions", _versions()),
            Row("Spread", _spread()),
        ],
        variables(operation_variable()),
        since="now-24h",
    )


def _now() -> list[Panel]:
    error = 'memwatch_operation_status="error"'
    failed = f"sum ({last(_COUNT, _CHOSEN, error)})"
    all_of_them = f"sum ({last(_COUNT, _CHOSEN)})"
    return [
        stat(
            "Closed",
            "short",
            "Operations that came to an end within the dashboard's time.",
            Query(all_of_them, "closed"),
            unknown="no operation reports",
            width=8,
        ),
        stat(
            "Failed",
            "short",
            "Operations that ended with an error.",
            # None failed is 0, but only where there were operations.
            Query(f"{failed} or {all_of_them} * 0", "failed"),
            unknown="no operation reports",
            levels=((None, GREEN), (1, RED)),
            width=8,
        ),
        stat(
            "Open now",
            "short",
            "Operations that are open in active runs.",
            Query(f"sum ({series('memwatch.operation.active', _CHOSEN)})", "open"),
            unknown="no operation reports",
            width=8,
        ),
        bars(
            "Largest peaks",
            "bytes",
            "Of each operation, as exact as it was measured.",
            Query(f"topk(20, {_largest(_NAME)})", _LEGEND),
        ),
        timeseries(
            "Open operations",
            "short",
            "Over time; operations shorter than the time between two samples may be missing.",
            Query(f"sum by ({_NAME}) ({series('memwatch.operation.active', _CHOSEN)})", _LEGEND),
            height=9,
        ),
    ]


def _largest(by: str) -> str:
    """The largest peak of each operation within the dashboard's time."""
    return f"max by ({by}) ({last(_LARGEST, _CHOSEN)})"


def _mean_seconds(by: str) -> str:
    """The mean duration of each operation within the dashboard's time; counters of a run begin with it at 0."""
    return f"sum by ({by}) ({last(_TIME, _CHOSEN)}) / sum by ({by}) ({last(_COUNT, _CHOSEN)})"


def _of_chosen(expression: str) -> str:
    """Limits an expression of `promql` to the chosen operations."""
    return expression.replace('instance=~"$run"', f'instance=~"$run",{_CHOSEN}')


def _over_time() -> list[Panel]:
    time, count = (
        f"last_over_time({series(metric, _CHOSEN, window='$__rate_interval')})" for metric in (_TIME, _COUNT)
    )
    return [
        timeseries(
            "Largest peak so far",
            "bytes",
            "Of each operation in the runs that report at a time.",
            Query(f"max by ({_NAME}) ({series(_LARGEST, _CHOSEN)})", _LEGEND),
            height=9,
        ),
        timeseries(
            "Mean duration so far",
            "s",
            "Of each operation in the runs that report at a time.",
            Query(f"sum by ({_NAME}) ({time}) / sum by ({_NAME}) ({count})", _LEGEND),
            height=9,
        ),
        timeseries(
            "Operations closed so far",
            "short",
            "Of the runs that report at a time, by how they ended. Not a rate: most operations of a job happen once.",
            Query(
                f"sum by ({_NAME}, memwatch_operation_status) ({count})",
                f"{_LEGEND} {{{{memwatch_operation_status}}}}",
            ),
        ),
        table(
            "All operations",
            "Within the dashboard's time.",
            {_NAME: "Operation"},
            TableColumn("Largest peak", "bytes", _largest(_NAME)),
            TableColumn("Mean duration", "s", _mean_seconds(_NAME)),
            TableColumn("Closed", "short", f"sum by ({_NAME}) ({last(_COUNT, _CHOSEN)})"),
            width=12,
            height=8,
        ),
    ]


_ONLY = "Only of runs with --operation-metrics histograms."


def _spread() -> list[Panel]:
    return [
        heatmap(
            "Peaks",
            "bytes",
            "How many of the operations that reporting runs have closed so far had a peak in each range. Points are exemplars: they lead to the span. They come by OTLP "
            f"and remote write, not from a scraped page. {_ONLY}",
            Query(_of_chosen(so_far(_PEAK, by="le")), "{{le}}", exemplar=True),
        ),
        heatmap(
            "Durations",
            "s",
            f"How many of the operations that reporting runs have closed so far took so long. {_ONLY}",
            Query(_of_chosen(so_far(_DURATION, by="le")), "{{le}}", exemplar=True),
        ),
        timeseries(
            "Durations, median and 95th percentile",
            "s",
            f"Estimates: the buckets of a scraped page are wide. {_ONLY}",
            Query(_of_chosen(quantile(0.5, _DURATION, _NAME)), f"{_LEGEND} median", exemplar=True),
            Query(_of_chosen(quantile(0.95, _DURATION, _NAME)), f"{_LEGEND} 95 %", exemplar=True),
            height=9,
        ),
    ]


def _versions() -> list[Panel]:
    by = f"{_NAME}, service_version"
    legend = f"{_LEGEND} {{{{service_version}}}}"
    return [
        bars(
            "Largest peak by version",
            "bytes",
            "A version that needs more stands out beside the one before. The version is the resource attribute "
            "service.version, which the recipes in deploy/ set.",
            Query(f"topk(30, max by ({by}) ({_with_version(_LARGEST, 'max')}))", legend),
        ),
        bars(
            "Mean duration by version",
            "s",
            "The same for time.",
            Query(
                f"topk(30, sum by ({by}) ({_with_version(_TIME, 'sum')}) / sum by ({by}) ({_with_version(_COUNT, 'sum')}))",
                legend,
            ),
        ),
    ]


def _with_version(metric: str, how: str) -> str:
    one = f"{how} by ({RUN}, {_NAME}) ({last(metric, _CHOSEN)})"
    return with_info(one, "service_version", window="$__range")

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
    overall_mean,
    overall_quantile,
    quantile,
    series,
    so_far,
    with_info,
)

_NAME = "memwatch_operation_name"
_CHOSEN = f'{_NAME}=~"$operation"'
_DURATION = "memwatch.operation.duration"
_PEAK = "memwatch.operation.memory.peak"
_LEGEND = f"{{{{{_NAME}}}}}"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-operations",
        "otel-memwatch / Operations",
        "Named stretches of programs' work: durations and memory peaks, their spread, and versions side by side.",
        [
            Row("Now", _now()),
            Row("Memory", _memory()),
            Row("Duration", _duration()),
            Row("Versions", _versions()),
        ],
        variables(operation_variable()),
        since="now-24h",
    )


def _now() -> list[Panel]:
    error = 'memwatch_operation_status="error"'
    failed = f"sum ({last(_DURATION, _CHOSEN, error, part='count')})"
    all_of_them = f"sum ({last(_DURATION, _CHOSEN, part='count')})"
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
            "Largest peaks below",
            "bytes",
            "Upper bound of the bucket of each operation's largest peak.",
            Query(f"topk(20, {_of_chosen(overall_quantile(1, _PEAK, _NAME))})", _LEGEND),
        ),
        timeseries(
            "Open operations",
            "short",
            "Over time; operations shorter than the time between two samples may be missing.",
            Query(f"sum by ({_NAME}) ({series('memwatch.operation.active', _CHOSEN)})", _LEGEND),
            height=9,
        ),
    ]


def _of_chosen(expression: str) -> str:
    """Limits an expression of `promql` to the chosen operations."""
    return expression.replace('instance=~"$run"', f'instance=~"$run",{_CHOSEN}')


def _memory() -> list[Panel]:
    return [
        heatmap(
            "Peaks",
            "bytes",
            "How many of the operations that reporting runs have closed so far had a peak in each range. Points are exemplars: they lead to the span. They come by OTLP "
            "and remote write, not from a scraped page.",
            Query(_of_chosen(so_far(_PEAK, by="le")), "{{le}}", exemplar=True),
        ),
        timeseries(
            "Peaks, median and 95th percentile",
            "bytes",
            "Within buckets that are powers of two, values are estimates.",
            Query(_of_chosen(quantile(0.5, _PEAK, _NAME)), f"{_LEGEND} median", exemplar=True),
            Query(_of_chosen(quantile(0.95, _PEAK, _NAME)), f"{_LEGEND} 95 %", exemplar=True),
            height=9,
        ),
    ]


def _duration() -> list[Panel]:
    return [
        heatmap(
            "Durations",
            "s",
            "How many of the operations that reporting runs have closed so far took so long.",
            Query(_of_chosen(so_far(_DURATION, by="le")), "{{le}}", exemplar=True),
        ),
        timeseries(
            "Durations, median and 95th percentile",
            "s",
            "Within buckets, values are estimates.",
            Query(_of_chosen(quantile(0.5, _DURATION, _NAME)), f"{_LEGEND} median", exemplar=True),
            Query(_of_chosen(quantile(0.95, _DURATION, _NAME)), f"{_LEGEND} 95 %", exemplar=True),
            height=9,
        ),
        timeseries(
            "Operations closed so far",
            "short",
            "Of the runs that report at a time, by how they ended. Not a rate: most operations of a job happen once.",
            Query(
                f"sum by ({_NAME}, memwatch_operation_status) ({series(_DURATION, _CHOSEN, part='count')})",
                f"{_LEGEND} {{{{memwatch_operation_status}}}}",
            ),
        ),
        table(
            "All operations",
            "Means are exact; the largest peak is the upper bound of its bucket.",
            {_NAME: "Operation"},
            TableColumn("Mean peak", "bytes", _of_chosen(overall_mean(_PEAK, _NAME))),
            TableColumn("Largest peak below", "bytes", _of_chosen(overall_quantile(1, _PEAK, _NAME))),
            TableColumn("Mean duration", "s", _of_chosen(overall_mean(_DURATION, _NAME))),
            TableColumn("Closed", "short", f"sum by ({_NAME}) ({last(_DURATION, _CHOSEN, part='count')})"),
            width=12,
            height=8,
        ),
    ]


def _versions() -> list[Panel]:
    by = f"{_NAME}, service_version"
    legend = f"{_LEGEND} {{{{service_version}}}}"
    return [
        bars(
            "Mean peak by version",
            "bytes",
            "A version that needs more stands out beside the one before. The version is the resource attribute "
            "service.version, which the recipes in deploy/ set.",
            Query(f"topk(30, {_mean_by_version(_PEAK, by)})", legend),
        ),
        bars(
            "Mean duration by version",
            "s",
            "The same for time.",
            Query(f"topk(30, {_mean_by_version(_DURATION, by)})", legend),
        ),
    ]


def _mean_by_version(metric: str, by: str) -> str:
    parts = []
    for part in ("sum", "count"):
        one = f"sum by ({RUN}, {_NAME}) ({last(metric, _CHOSEN, part=part)})"
        parts.append(f"sum by ({by}) ({with_info(one, 'service_version', window='$__range')})")
    return " / ".join(parts)

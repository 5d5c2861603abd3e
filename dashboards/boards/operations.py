"""Operations: duration, memory, and their change with the version."""

from __future__ import annotations

from dashboards.board import Row, dashboard, operation_variable, variables
from dashboards.boards.shared import ROWS, TOP
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
from dashboards.promql import quantile, recorded, so_far
from dashboards.records import (
    OPERATION,
    OPERATION_PEAK,
    OPERATION_SECONDS,
    OPERATIONS_CLOSED,
    OPERATIONS_OPEN,
    STATUS,
    VERSION,
    VERSION_CLOSED,
    VERSION_PEAK,
    VERSION_SECONDS,
)
from dashboards.thresholds import ARRIVAL_SECONDS

_CHOSEN = f'{OPERATION}=~"$operation"'
_DURATION = "memwatch.operation.duration"
_PEAK = "memwatch.operation.memory.peak"
_LEGEND = f"{{{{{OPERATION}}}}}"
_LATER = f"Counted {ARRIVAL_SECONDS} s later, when the last data of the runs has arrived."


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-operations",
        "otel-memwatch / Operations",
        "Named parts of programs' work: durations, memory peaks, versions side by side, and the spread in selected runs.",
        [
            Row("Now", _now()),
            Row("Over time", _over_time()),
            Row("Versions", _versions()),
            Row("Spread in the runs selected above", _spread()),
        ],
        variables(operation_variable(), all_runs=False),
        since="now-24h",
    )


def _over(name: str, *matchers: str, window: str = "$__range") -> str:
    """Sum of a counted series over a time range."""
    return f"sum_over_time({recorded(name, _CHOSEN, *matchers, window=window)})"


def _now() -> list[Panel]:
    error = f'{STATUS}="error"'
    all_of_them = f"sum ({_over(OPERATIONS_CLOSED)})"
    return [
        stat(
            "Closed",
            "short",
            f"Operations that ended in the dashboard's time range. {_LATER}",
            Query(all_of_them, "closed"),
            unknown="no operation reports",
            width=8,
        ),
        stat(
            "Failed",
            "short",
            f"Operations that ended with an error in the dashboard's time range. {_LATER}",
            # No failure is 0, but only if there were operations.
            Query(f"sum ({_over(OPERATIONS_CLOSED, error)}) or {all_of_them} * 0", "failed"),
            unknown="no operation reports",
            levels=((None, GREEN), (1, RED)),
            width=8,
        ),
        stat(
            "Open now",
            "short",
            "Open operations in active runs.",
            Query(f"sum ({recorded(OPERATIONS_OPEN, _CHOSEN)})", "open"),
            unknown="no operation reports",
            width=8,
        ),
        bars(
            "Largest peaks",
            "bytes",
            "Peak of each operation.",
            Query(f"topk({TOP}, {_largest()})", _LEGEND),
        ),
        timeseries(
            "Open operations",
            "short",
            f"The {TOP} names with the most open operations. Operations shorter than the sampling interval may be missing.",
            Query(f"topk({TOP}, sum by ({OPERATION}) ({recorded(OPERATIONS_OPEN, _CHOSEN)}))", _LEGEND),
            height=9,
        ),
    ]


def _largest() -> str:
    """Largest peak of each operation in the dashboard's time range."""
    return f"max by ({OPERATION}) (max_over_time({recorded(OPERATION_PEAK, _CHOSEN, window='$__range')}))"


def _mean_seconds(window: str) -> str:
    """Mean duration of the operations of each name closed in a time range; nothing if there are none."""
    seconds = f"sum by ({OPERATION}) ({_over(OPERATION_SECONDS, window=window)})"
    return f"{seconds} / (sum by ({OPERATION}) ({_over(OPERATIONS_CLOSED, window=window)}) > 0)"


def _over_time() -> list[Panel]:
    of_rows = f"and on ({OPERATION}) topk({ROWS}, {_largest()})"
    return [
        timeseries(
            "Largest peak",
            "bytes",
            f"Peak so far of the {TOP} largest operations, in runs that report at a time or ended minutes before.",
            Query(
                f"topk({TOP}, max by ({OPERATION}) ({recorded(OPERATION_PEAK, _CHOSEN)}))",
                _LEGEND,
            ),
            height=9,
        ),
        timeseries(
            "Mean duration",
            "s",
            f"The {TOP} longest operations among those closed around each time. {_LATER}",
            Query(f"topk({TOP}, {_mean_seconds('$__rate_interval')})", _LEGEND),
            height=9,
        ),
        timeseries(
            "Operations closed within five minutes",
            "short",
            f"Operations closed in the five minutes before each point, by result; the {TOP} most frequent. {_LATER}",
            Query(
                f"topk({TOP}, sum by ({OPERATION}, {STATUS}) ({_over(OPERATIONS_CLOSED, window='5m')}))",
                f"{_LEGEND} {{{{{STATUS}}}}}",
            ),
        ),
        table(
            "All operations",
            f"The {ROWS} largest operations in the dashboard's time range. {_LATER}",
            {OPERATION: "Operation"},
            TableColumn("Largest peak", "bytes", f"topk({ROWS}, {_largest()})"),
            TableColumn("Mean duration", "s", f"{_mean_seconds('$__range')} {of_rows}"),
            TableColumn("Closed", "short", f"sum by ({OPERATION}) ({_over(OPERATIONS_CLOSED)}) {of_rows}"),
            width=12,
            height=8,
        ),
    ]


_ONLY = "Only for the runs selected above that use --operation-metrics histograms."


def _spread() -> list[Panel]:
    return [
        heatmap(
            "Peaks",
            "bytes",
            "Number of operations with a peak in each range, among those that reporting runs have closed so far. Points are exemplars: they "
            f"link to the span. They arrive by OTLP and remote write, not from a scraped page. {_ONLY}",
            Query(so_far(_PEAK, _CHOSEN, by="le"), "{{le}}", exemplar=True),
        ),
        heatmap(
            "Durations",
            "s",
            f"Number of operations with a duration in each range, among those that reporting runs have closed so far. {_ONLY}",
            Query(so_far(_DURATION, _CHOSEN, by="le"), "{{le}}", exemplar=True),
        ),
        timeseries(
            "Durations, median and 95th percentile",
            "s",
            f"Estimates, because the buckets of a scraped page are wide. {_ONLY}",
            Query(quantile(0.5, _DURATION, _CHOSEN, by=OPERATION), f"{_LEGEND} median", exemplar=True),
            Query(quantile(0.95, _DURATION, _CHOSEN, by=OPERATION), f"{_LEGEND} 95 %", exemplar=True),
            height=9,
        ),
    ]


def _versions() -> list[Panel]:
    by = f"{OPERATION}, {VERSION}"
    legend = f"{_LEGEND} {{{{{VERSION}}}}}"
    return [
        bars(
            "Largest peak by version",
            "bytes",
            "Compare each version with the one before. The version is the resource attribute service.version, which the "
            "recipes in deploy/ set.",
            Query(
                f"topk(30, max by ({by}) (max_over_time({recorded(VERSION_PEAK, _CHOSEN, window='$__range')})))",
                legend,
            ),
        ),
        bars(
            "Mean duration by version",
            "s",
            f"The same for durations. {_LATER}",
            Query(
                f"topk(30, sum by ({by}) ({_over(VERSION_SECONDS)}) / (sum by ({by}) ({_over(VERSION_CLOSED)}) > 0))",
                legend,
            ),
        ),
    ]

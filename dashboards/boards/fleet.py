"""Fleet: all runs of all services: runs near their limit, killed runs, unneeded memory."""

from __future__ import annotations

from dashboards.board import Row, annotation, dashboard, fleet_variables, run_link
from dashboards.boards.shared import (
    KILL_LEVELS,
    ROWS,
    SHARE_LEVELS,
    TOP,
    ended,
    ended_badly,
    oom_kills,
    state_of_run,
)
from dashboards.measures import share_of_limit
from dashboards.panels import (
    BLUE,
    GREEN,
    RED,
    Json,
    Panel,
    Query,
    TableColumn,
    bars,
    stat,
    table,
    timeseries,
)
from dashboards.promql import FLEET, JOB, RUN, last_per_run, per_run, recorded
from dashboards.records import (
    ACTIVE,
    CPU,
    DISK,
    FAILING,
    FULLEST,
    KILLS,
    NEEDED_BYTES,
    NEVER_NEEDED,
    OPERATION,
    OPERATION_PEAK,
    PEAK,
    REQUESTED_BYTES,
    USED_BYTES,
)
from dashboards.thresholds import LIMIT_NEAR, SILENT_WINDOW


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-fleet",
        "otel-memwatch / Fleet",
        "All runs: nearest to their limit, killed, with unneeded memory, growing from week to week.",
        [
            Row("Now", _now()),
            Row("Nearest to the limit", _nearest()),
            Row("Requested against used", _requested()),
            Row("Peaks over time", _peaks()),
            Row("Ends and monitors", _ends()),
        ],
        fleet_variables(),
        annotations=[
            annotation(
                "OOM kills",
                f"{recorded(KILLS)} > 0",
                "OOM kill",
                "{{job}}",
                "red",
                step="1m",
            ),
        ],
        since="now-24h",
        refresh="1m",
    )


def _now() -> list[Panel]:
    silent = last_per_run("memwatch.run.active", scope=FLEET, window=SILENT_WINDOW)
    # No silent run is 0, but only if there were runs.
    gone = f"sum (({silent} == 1) unless {per_run('memwatch.run.active', scope=FLEET)}) or sum ({silent}) * 0"
    return [
        stat(
            "Runs active",
            "short",
            "Runs that their monitor reports as active.",
            Query(f"sum ({recorded(ACTIVE)})", "active"),
            unknown="no monitor reports",
        ),
        stat(
            "Runs seen",
            "short",
            "Runs that reported in the dashboard's time range, including ended ones.",
            Query(f"count ({last_per_run('memwatch.run.active', scope=FLEET)})", "seen"),
            unknown="no monitor reports",
        ),
        stat(
            "Near the limit now",
            "short",
            f"Active runs above {LIMIT_NEAR:.0%} of their memory limit. Runs without a limit are not counted.",
            Query(f"sum ({share_of_limit(FLEET)} > bool {LIMIT_NEAR:g})", "near"),
            unknown="no run has a limit",
            levels=KILL_LEVELS,
        ),
        oom_kills(scope=FLEET),
        ended_badly("Runs that ended in the dashboard's time range with an exit code other than 0."),
        stat(
            "Fell silent",
            "short",
            f"Runs of the last {SILENT_WINDOW} that were active in their last report and no longer report. They were killed with their "
            "monitor, or scraped without --linger.",
            Query(gone, "silent"),
            unknown="no monitor reports",
            levels=KILL_LEVELS,
        ),
    ]


def _nearest() -> list[Panel]:
    neediest = f"topk({ROWS}, {_peak()})"
    return [
        bars(
            "Nearest to the limit now",
            "percentunit",
            "Active runs with a memory limit, by the memory that counts against it.",
            Query(f"topk({TOP}, {share_of_limit(FLEET)})", "{{job}} {{instance}}"),
            levels=SHARE_LEVELS,
            maximum=1,
            links=[run_link()],
        ),
        timeseries(
            "Share of the limit",
            "percentunit",
            "The same over time, for the run of each service nearest to its limit.",
            Query(f"topk({TOP}, {recorded(FULLEST)})", "{{namespace}} {{job}}"),
            maximum=1,
            height=9,
        ),
        table(
            "Runs",
            f"The {ROWS} runs with the largest peaks in the dashboard's time range. Click a run to open it.",
            {"job": "Service", "instance": "Run"},
            TableColumn("Memory needed", "bytes", neediest),
            TableColumn(
                "Exit code (-1: runs)",
                "short",
                f"({state_of_run(FLEET)}) and on ({RUN}) {neediest}",
                ((None, BLUE), (0, GREEN), (1, RED)),
            ),
            height=12,
            links={"instance": run_link("${__value.raw}")},
        ),
    ]


def _peak() -> str:
    return last_per_run("memwatch.tree.memory.peak", scope=FLEET)


def _requested() -> list[Panel]:
    return [
        timeseries(
            "Requested, used, needed",
            "bytes",
            "Sums over active runs. The request is the limit of the cgroup. Runs without a limit are in none of the three.",
            Query(f"sum ({recorded(REQUESTED_BYTES)})", "requested"),
            Query(f"sum ({recorded(USED_BYTES)})", "used"),
            Query(f"sum ({recorded(NEEDED_BYTES)})", "needed at the peaks so far"),
            height=9,
        ),
        bars(
            "Largest unneeded memory, by service",
            "bytes",
            "Limit minus the largest peak of each service. You can lower the limit by this amount, less a margin.",
            Query(
                f"topk({TOP}, min_over_time({recorded(NEVER_NEEDED, window='$__range')}))",
                "{{namespace}} {{job}}",
            ),
        ),
    ]


def _peaks() -> list[Panel]:
    largest = f"max_over_time({recorded(OPERATION_PEAK, window='$__range')})"
    return [
        timeseries(
            "Peak by service",
            "bytes",
            "The largest peak of the runs at each time. For branches and test jobs, see the CI dashboard.",
            Query(f"topk({TOP}, {recorded(PEAK)})", "{{namespace}} {{job}}"),
            height=9,
        ),
        bars(
            "Largest operations",
            "bytes",
            "Largest peak of each operation.",
            Query(f"topk({TOP}, {largest})", f"{{{{job}}}} {{{{{OPERATION}}}}}"),
        ),
        timeseries(
            "CPU by service",
            "short",
            "Cores in use.",
            Query(f"topk({TOP}, {recorded(CPU)})", "{{namespace}} {{job}}"),
        ),
        timeseries(
            "Disk by service",
            "Bps",
            "Bytes that reached storage, both ways.",
            Query(f"topk({TOP}, {recorded(DISK)})", "{{namespace}} {{job}} {{disk_io_direction}}"),
        ),
    ]


def _ends() -> list[Panel]:
    codes = f"sum by ({JOB}, ended) ({ended()})"
    return [
        table(
            "How runs ended",
            "Runs by service and exit code: 0, 137 (SIGKILL, which the OOM killer sends), any other.",
            {"job": "Service", "ended": "Ended"},
            TableColumn("Runs", "short", codes),
            width=8,
        ),
        timeseries(
            "OOM kills by service",
            "short",
            "Kills in each five minutes, when they are sampled. A kill before a run's second sample is only in the table of runs.",
            Query(recorded(KILLS), "{{namespace}} {{job}}"),
            width=8,
            height=9,
        ),
        timeseries(
            "Failing sources of monitors",
            "short",
            "Monitors with a source that cannot be read.",
            Query(f"sum by (memwatch_source_name) ({recorded(FAILING)})", "{{memwatch_source_name}}"),
            width=8,
            height=9,
        ),
    ]

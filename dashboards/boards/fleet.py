"""Fleet: all runs of all services: who is near the limit, who was killed, who wastes."""

from __future__ import annotations

from dashboards.board import Row, annotation, dashboard, run_link, variables
from dashboards.boards.shared import KILL_LEVELS, SHARE_LEVELS, oom_kills, state_of_run
from dashboards.measures import OOM_KILL, charged, limit, share_of_limit
from dashboards.panels import (
    BLUE,
    GREEN,
    RED,
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
from dashboards.promql import JOB, RUN, last, last_per_run, per_run, rate, series, with_info
from dashboards.thresholds import LIMIT_NEAR, SILENT_WINDOW

_TOP, _ROWS = 20, 200


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-fleet",
        "otel-memwatch / Fleet",
        "All runs: nearest to their limit, killed, wasting, growing from week to week.",
        [
            Row("Now", _now()),
            Row("Nearest to the limit", _nearest()),
            Row("Requested against used", _requested()),
            Row("Peaks over time", _peaks()),
            Row("Ends and monitors", _ends()),
        ],
        variables(),
        annotations=[
            annotation(
                "OOM kills",
                f"sum by ({JOB}) (increase({series('memwatch.cgroup.memory.events', OOM_KILL, window='$__rate_interval')})) > 0",
                "OOM kill",
                "{{job}}",
                "red",
                step="1m",
            ),
        ],
        since="now-24h",
    )


def _now() -> list[Panel]:
    silent = f"max by ({RUN}) (last_over_time({series('memwatch.run.active', window=SILENT_WINDOW)}))"
    # None silent is 0, but only where there were runs.
    gone = f"sum (({silent} == 1) unless {per_run('memwatch.run.active')}) or sum ({silent}) * 0"
    return [
        stat(
            "Runs active",
            "short",
            "Runs whose monitor says that they run.",
            Query(f"sum ({per_run('memwatch.run.active')})", "active"),
            unknown="no monitor reports",
        ),
        stat(
            "Runs seen",
            "short",
            "Runs that reported within the dashboard's time, ended ones too.",
            Query(f"count ({last_per_run('memwatch.run.active')})", "seen"),
            unknown="no monitor reports",
        ),
        stat(
            "Near the limit now",
            "short",
            f"Active runs above {LIMIT_NEAR:.0%} of their memory limit; runs without one are not counted.",
            Query(f"sum ({share_of_limit()} > bool {LIMIT_NEAR:g})", "near"),
            unknown="no run has a limit",
            levels=KILL_LEVELS,
        ),
        oom_kills(),
        stat(
            "Ended badly",
            "short",
            "Runs with an exit code other than 0.",
            Query(f"sum ({last_per_run('memwatch.run.exit.code')} > bool 0)", "ended badly"),
            unknown="no run has ended",
            levels=((None, GREEN), (1, YELLOW)),
        ),
        stat(
            "Fell silent",
            "short",
            f"Runs of the last {SILENT_WINDOW} that were active at their last sign and give none now: killed with their "
            "monitor, or scraped without --linger.",
            Query(gone, "silent"),
            unknown="no monitor reports",
            levels=KILL_LEVELS,
        ),
    ]


def _nearest() -> list[Panel]:
    return [
        bars(
            "Nearest to the limit now",
            "percentunit",
            "Active runs that have a memory limit, by what counts against it.",
            Query(f"topk({_TOP}, {share_of_limit()})", "{{job}} {{instance}}"),
            levels=SHARE_LEVELS,
            maximum=1,
            links=[run_link()],
        ),
        timeseries(
            "Share of the limit",
            "percentunit",
            "The same over time, of each service its run that is nearest: a line for each run would be thousands.",
            Query(f"topk({_TOP}, max by ({JOB}) ({share_of_limit()}))", "{{namespace}} {{job}}"),
            maximum=1,
            height=9,
        ),
        table(
            "Runs",
            f"The {_ROWS} runs within the dashboard's time that needed most. Click on one to open it.",
            {"job": "Service", "instance": "Run"},
            TableColumn("Memory needed", "bytes", f"topk({_ROWS}, {_peak()})"),
            TableColumn(
                "Needed of its limit",
                "percentunit",
                f"{_peak()} / {limit(ended=True)}",
                SHARE_LEVELS,
            ),
            TableColumn("Limit", "bytes", limit(ended=True)),
            TableColumn(
                "OOM kills", "short", last_per_run("memwatch.cgroup.memory.events", OOM_KILL), KILL_LEVELS
            ),
            TableColumn(
                "Exit code (-1: runs)", "short", state_of_run(), ((None, BLUE), (0, GREEN), (1, RED))
            ),
            TableColumn("CPU seconds", "s", last_per_run("memwatch.tree.cpu.time", how="sum")),
            height=12,
            links={"instance": run_link("${__value.raw}")},
        ),
    ]


def _peak() -> str:
    return last_per_run("memwatch.tree.memory.peak")


def _requested() -> list[Panel]:
    return [
        timeseries(
            "Requested, used, needed",
            "bytes",
            "Sums over active runs. What is requested is the control groups' limits: runs without one are in none of the "
            "three.",
            Query(f"sum ({limit()})", "requested"),
            Query(
                f"sum ({charged()} and {limit()})",
                "used",
            ),
            Query(
                f"sum ({per_run('memwatch.tree.memory.peak')} and {limit()})",
                "needed at the peaks",
            ),
            height=9,
        ),
        bars(
            "Most that was never needed, by service",
            "bytes",
            "Limit less peak of the hungriest run of each service: what its limit can be lowered by, with a margin.",
            Query(f"topk({_TOP}, min by ({JOB}) ({limit(ended=True)} - {_peak()}))", "{{job}}"),
        ),
    ]


def _peaks() -> list[Panel]:
    operation = "memwatch_operation_name"
    by_branch = with_info(per_run("memwatch.tree.memory.peak"), "vcs_ref_head_name")
    largest = f"max by ({JOB}, {operation}) ({last('memwatch.operation.memory.peak.max')})"
    return [
        timeseries(
            "Peak by service and branch",
            "bytes",
            "The largest peak of the runs at each time. The branch is the resource attribute vcs.ref.head.name, which the "
            "recipes in deploy/ set.",
            Query(f"max by ({JOB}, vcs_ref_head_name) ({by_branch})", "{{job}} {{vcs_ref_head_name}}"),
            height=9,
        ),
        bars(
            "Operations that need most",
            "bytes",
            "Largest peak of each operation.",
            Query(f"topk({_TOP}, {largest})", f"{{{{job}}}} {{{{{operation}}}}}"),
        ),
        timeseries(
            "CPU by service",
            "short",
            "Cores in use.",
            Query(rate("memwatch.tree.cpu.time", by="job"), "{{job}}"),
        ),
        timeseries(
            "Disk by service",
            "Bps",
            "Bytes that reached storage, both ways.",
            Query(
                rate("memwatch.tree.disk.io", by="job, disk_io_direction"), "{{job}} {{disk_io_direction}}"
            ),
        ),
    ]


def _ends() -> list[Panel]:
    codes = f'count_values by ({JOB}) ("exit_code", max by ({RUN}) ({last("memwatch.run.exit.code")}))'
    return [
        table(
            "How runs ended",
            "Runs by service and exit code; 137 is SIGKILL, which the OOM killer sends.",
            {"job": "Service", "exit_code": "Exit code"},
            TableColumn("Runs", "short", codes),
            width=8,
        ),
        timeseries(
            "OOM kills by service",
            "short",
            "As they are seen; one that came before a run's second sample is only in the table of runs.",
            Query(
                f"sum by ({JOB}) (increase({series('memwatch.cgroup.memory.events', OOM_KILL, window='$__rate_interval')}))",
                "{{job}}",
            ),
            width=8,
            height=9,
        ),
        timeseries(
            "Failing sources of monitors",
            "short",
            "Monitors in which a source can not be read.",
            Query(
                f"sum by (memwatch_source_name) ({series('memwatch.source.up')} == bool 0)",
                "{{memwatch_source_name}}",
            ),
            width=8,
            height=9,
        ),
    ]

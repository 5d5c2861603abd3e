"""Fleet: all runs of all services: who is near the limit, who was killed, who wastes."""

from __future__ import annotations

from dashboards.board import Row, annotation, dashboard, run_link, variables
from dashboards.boards.shared import KILL_LEVELS, SHARE_LEVELS, oom_kills, state_of_run
from dashboards.measures import CGROUP_LIMIT, OOM_KILL, available, used, used_share
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
from dashboards.promql import last, last_per_run, overall_mean, per_run, rate, series, with_info
from dashboards.thresholds import LIMIT_NEAR, SILENT_WINDOW

_TOP = 20


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
                f"sum by (job) (increase({series('memwatch.cgroup.memory.events', OOM_KILL, window='$__rate_interval')})) > 0",
                "OOM kill",
                "{{job}}",
                "red",
                step="1m",
            ),
        ],
        since="now-24h",
    )


def _now() -> list[Panel]:
    silent = f"max by (job, instance) (last_over_time({series('memwatch.run.active', window=SILENT_WINDOW)}))"
    gone = f"sum ({silent} == bool 1) - sum ({per_run('memwatch.run.active')} == bool 1)"
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
            f"Active runs above {LIMIT_NEAR:.0%} of the memory that they can have.",
            Query(f"sum ({used_share()} > bool {LIMIT_NEAR:g})", "near"),
            unknown="no monitor reports",
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
            "Active runs by their share of what they can have: their control group's limit, else the machine.",
            Query(f"topk({_TOP}, {used_share()})", "{{job}} {{instance}}"),
            levels=SHARE_LEVELS,
            maximum=1,
            links=[run_link()],
        ),
        timeseries(
            "Share of the limit",
            "percentunit",
            "The same over time.",
            Query(f"topk({_TOP}, {used_share()})", "{{job}} {{instance}}"),
            maximum=1,
            height=9,
        ),
        table(
            "Runs",
            "Every run within the dashboard's time. Click on one to open it.",
            {"job": "Service", "instance": "Run"},
            TableColumn(
                "Peak of what it can have",
                "percentunit",
                f"{_peak()} / {available(ended=True)}",
                SHARE_LEVELS,
            ),
            TableColumn("Memory needed", "bytes", _peak()),
            TableColumn("Can have", "bytes", available(ended=True)),
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
    limit = last_per_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, how="min")
    return [
        timeseries(
            "Requested, used, needed",
            "bytes",
            "Sums over active runs. What is requested is the control groups' limits: runs without one are in none of the "
            "three.",
            Query(f"sum ({per_run('memwatch.cgroup.memory.limit', CGROUP_LIMIT, how='min')})", "requested"),
            Query(
                f"sum ({used()} and {per_run('memwatch.cgroup.memory.limit', CGROUP_LIMIT, how='min')})",
                "used",
            ),
            Query(
                f"sum ({per_run('memwatch.tree.memory.peak')} and {per_run('memwatch.cgroup.memory.limit', CGROUP_LIMIT, how='min')})",
                "needed at the peaks",
            ),
            height=9,
        ),
        bars(
            "Most that was never needed, by service",
            "bytes",
            "Limit less peak of the hungriest run of each service: what its limit can be lowered by, with a margin.",
            Query(f"topk({_TOP}, min by (job) ({limit} - {_peak()}))", "{{job}}"),
        ),
    ]


def _peaks() -> list[Panel]:
    operation = "memwatch_operation_name"
    by_branch = with_info(per_run("memwatch.tree.memory.peak"), "vcs_ref_head_name")
    means = overall_mean("memwatch.operation.memory.peak", f"job, {operation}")
    return [
        timeseries(
            "Peak by service and branch",
            "bytes",
            "The largest peak of the runs at each time. The branch is the resource attribute vcs.ref.head.name, which the "
            "recipes in deploy/ set.",
            Query(f"max by (job, vcs_ref_head_name) ({by_branch})", "{{job}} {{vcs_ref_head_name}}"),
            height=9,
        ),
        bars(
            "Operations that need most",
            "bytes",
            "Mean peak of each operation.",
            Query(f"topk({_TOP}, {means})", f"{{{{job}}}} {{{{{operation}}}}}"),
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
    codes = f'count_values by (job) ("exit_code", max by (job, instance) ({last("memwatch.run.exit.code")}))'
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
                f"sum by (job) (increase({series('memwatch.cgroup.memory.events', OOM_KILL, window='$__rate_interval')}))",
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

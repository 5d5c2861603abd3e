"""Recording rules: one series per run for alerts that look back, and one per service, or per test job of a branch.

The dashboards of a fleet read the latter. A panel over a day then reads one series per service, independent of the number
of runs.
"""

from __future__ import annotations

from typing import NamedTuple

from dashboards import measures
from dashboards.promql import EVERYTHING, JOB, RUN, last, last_per_run, names_in, per_run, series, with_info
from dashboards.thresholds import (
    ARRIVAL_SECONDS,
    RANKS_OF_MANY,
    RANKS_SHOWN,
    RECENT_SECONDS,
    RULE_SECONDS,
    SILENT_WINDOW,
)

USED = "job_instance:memwatch_memory_used:ratio"
AVAILABLE = "job_instance:memwatch_memory_available_bytes:min"
TREE = "job_instance:memwatch_tree_memory_usage_bytes:max"
GPU_USED = "job_instance_hw_id:hw_gpu_memory_used:ratio"
GPU_BUSY = "job_instance_hw_id:hw_gpu_utilization:ratio"

PEAK = "job:memwatch_tree_memory_peak_bytes:max"
ACTIVE = "job:memwatch_run_active:sum"
FULLEST = "job:memwatch_limit_used:ratio"
REQUESTED_BYTES = "job:memwatch_requested_bytes:sum"
USED_BYTES = "job:memwatch_used_bytes:sum"
NEEDED_BYTES = "job:memwatch_needed_bytes:sum"
CPU = "job:memwatch_tree_cpu_time_seconds:rate5m"
DISK = "job_direction:memwatch_tree_disk_io_bytes:rate5m"
KILLS = "job:memwatch_oom_kills:increase5m"
FAILING = "job_source:memwatch_source_failing:sum"
NEVER_NEEDED = "job:memwatch_never_needed_bytes:min"

OPERATION, STATUS, VERSION = "memwatch_operation_name", "memwatch_operation_status", "service_version"
OPERATION_PEAK = "job_operation:memwatch_operation_memory_peak_bytes:max"
OPERATIONS_OPEN = "job_operation:memwatch_operations_open:sum"
OPERATIONS_CLOSED = "job_operation_status:memwatch_operations_closed:sum"
"""Closed operations, each counted at one evaluation; the sum over a time range is their number."""
OPERATION_SECONDS = "job_operation:memwatch_operation_seconds:sum"
"""Total duration of these operations, at the same evaluation."""
VERSION_PEAK = "job_operation_version:memwatch_operation_memory_peak_bytes:max"
VERSION_CLOSED = "job_operation_version:memwatch_operations_closed:sum"
VERSION_SECONDS = "job_operation_version:memwatch_operation_seconds:sum"

TASK = f"{JOB}, cicd_pipeline_name, cicd_pipeline_task_name"
"""Labels that identify one test job: a service within one job of one pipeline."""

BRANCH = "vcs_ref_head_name"
OF_BRANCH = f'{BRANCH}!=""'
ENDED = "task_branch_end:memwatch_runs_ended:count"
"""Ended runs, each counted at one evaluation; the sum over a time range is their number. The label `ended` is the result."""
_ENDS = {"well": "== 0", "killed": "== 137", "badly": "!= 0 != 137"}
"""Exit codes of each `ended`. Not count_values: with several labels, Prometheus 2.42 loses some of them in later evaluations."""
CI_LARGEST = "task_branch:memwatch_tree_memory_peak_bytes:max"
CI_SMALLEST = "task_branch:memwatch_tree_memory_peak_bytes:min"


GROUP_ID, RANK = "memwatch_group_id", "memwatch_group_rank"
GROUP = f"{JOB}, {GROUP_ID}"
"""Labels that identify one group: the ranks of one job."""
GROUP_USED = "group:memwatch_tree_memory_usage_bytes:sum"
GROUP_RANKS = "group:memwatch_run_active:sum"
GROUP_LARGEST = "group:memwatch_tree_memory_peak_bytes:max"
GROUP_MEDIAN = "group:memwatch_tree_memory_peak_bytes:median"
RANK_PEAK = "group_rank:memwatch_tree_memory_peak_bytes:max"

_LOOK_BACK = "10m"


class Record(NamedTuple):
    """A recording rule."""

    name: str
    expression: str


def records() -> list[Record]:
    """All recording rules."""
    return [*_of_runs(), *_of_services(), *_of_operations(), *_of_test_jobs(), *_of_groups()]


def _of_runs() -> list[Record]:
    """Series that alerts read over longer times, one per run."""
    scope = EVERYTHING
    return [
        Record(AVAILABLE, measures.available(scope)),
        Record(USED, measures.used_share(scope)),
        Record(TREE, per_run("memwatch.tree.memory.usage", scope=scope)),
        Record(GPU_USED, measures.gpu_share(scope)),
        # Gauges of unit 1 have two names, depending on their path.
        Record(GPU_BUSY, f"max by ({RUN}, hw_id) ({series('hw.gpu.utilization', scope=scope)})"),
    ]


def _of_services() -> list[Record]:
    scope = EVERYTHING
    # The last values of an ended run stay for a while, but its memory is free. Record 0 rather than nothing: the recorded
    # series then ends at once, even if a series ends without a marker.
    active = _active()
    limit, charged = measures.limit(scope), measures.charged(scope)
    peak = per_run("memwatch.tree.memory.peak", scope=scope)
    latest_limit, latest_peak = measures.limit(scope, window=_LOOK_BACK), _latest("memwatch.tree.memory.peak")
    kills = series("memwatch.cgroup.memory.events", measures.OOM_KILL, scope=scope, window="5m")
    source_up = series("memwatch.source.up", scope=scope)
    return [
        Record(PEAK, f"max by ({JOB}) ({_not_long_ago(latest_peak)})"),
        Record(ACTIVE, f"sum by ({JOB}) ({per_run('memwatch.run.active', scope=scope)})"),
        Record(FULLEST, f"max by ({JOB}) ({measures.share_of_limit(scope)} * {active})"),
        Record(REQUESTED_BYTES, f"sum by ({JOB}) ({limit} * {active})"),
        Record(USED_BYTES, f"sum by ({JOB}) (({charged} and {limit}) * {active})"),
        Record(NEEDED_BYTES, f"sum by ({JOB}) (({peak} and {limit}) * {active})"),
        Record(CPU, _rate("memwatch.tree.cpu.time", JOB)),
        Record(DISK, _rate("memwatch.tree.disk.io", f"{JOB}, disk_io_direction")),
        Record(KILLS, f"sum by ({JOB}) (increase({kills}))"),
        Record(FAILING, f"sum by ({JOB}, memwatch_source_name) ({source_up} == bool 0)"),
        Record(NEVER_NEEDED, f"min by ({JOB}) ({latest_limit} - {_not_long_ago(latest_peak)})"),
    ]


def _active() -> str:
    return f"({per_run('memwatch.run.active', scope=EVERYTHING)} == bool 1)"


def _of_operations() -> list[Record]:
    """Operations by name; each run has at most a hundred names."""
    scope = EVERYTHING
    by, by_version = f"{JOB}, {OPERATION}", f"{JOB}, {OPERATION}, {VERSION}"
    # Look back, because a scraped run disappears right after its end, when most of its operations close.
    latest = last("memwatch.operation.memory.peak.max", scope=scope, window=_LOOK_BACK)
    peak = f"(max by ({RUN}, {OPERATION}) ({latest}) unless on ({RUN}) {ended_long_ago()})"
    opened = f"max by ({RUN}, {OPERATION}) ({series('memwatch.operation.active', scope=scope)})"
    closed = _grown("memwatch.operation.count", OPERATION, STATUS)
    seconds = _grown("memwatch.operation.time", OPERATION)
    return [
        Record(OPERATION_PEAK, f"max by ({by}) ({peak})"),
        Record(OPERATIONS_OPEN, f"sum by ({by}) ({opened} * on ({RUN}) group_left () {_active()})"),
        Record(OPERATIONS_CLOSED, f"sum by ({by}, {STATUS}) ({closed})"),
        Record(OPERATION_SECONDS, f"sum by ({by}) ({seconds})"),
        Record(VERSION_PEAK, f"max by ({by_version}) ({_with_version(peak)})"),
        Record(VERSION_CLOSED, f"sum by ({by_version}) ({_with_version(closed)})"),
        Record(VERSION_SECONDS, f"sum by ({by_version}) ({_with_version(seconds)})"),
    ]


def _grown(counter: str, *labels: str) -> str:
    """Growth of each run's counter between two evaluations, including its first value, with a delay.

    `increase` omits the first value, which is everything for a short job. Without the delay, samples that arrive between two
    evaluations with an earlier timestamp would count in neither.
    """
    by = ", ".join((RUN, *labels))

    def ago(seconds: int) -> str:
        samples = series(counter, scope=EVERYTHING, window=SILENT_WINDOW)
        return f"max by ({by}) (last_over_time({samples} offset {seconds}s))"

    now, before = ago(ARRIVAL_SECONDS), ago(ARRIVAL_SECONDS + RULE_SECONDS)
    # A smaller value means a restart: another run with the same name.
    return f"({now} - {before} >= 0 or {now})"


def _with_version(per_run_expression: str) -> str:
    return with_info(per_run_expression, VERSION, scope=EVERYTHING, window=_LOOK_BACK)


def _of_test_jobs() -> list[Record]:
    """Peaks of successful runs with a branch. A failed run may have ended before its peak."""
    # Not while another run with the same name is active, because the peak belongs to that one.
    active = per_run("memwatch.run.active", scope=EVERYTHING)
    well = f"{_latest('memwatch.run.exit.code')} == 0 unless {active} == 1"
    peak = _not_long_ago(f"{_latest('memwatch.tree.memory.peak')} and ({well})")
    by = f"{TASK}, {BRANCH}"
    of_branch = _with_task(f"({peak})", OF_BRANCH)
    return [
        Record(ENDED, " or ".join(_counted(by, how, code) for how, code in _ENDS.items())),
        Record(CI_LARGEST, f"max by ({by}) ({of_branch})"),
        Record(CI_SMALLEST, f"min by ({by}) ({of_branch})"),
    ]


def _of_groups() -> list[Record]:
    """Groups of ranks. Small groups have a series per rank, larger ones only for the largest ranks."""
    scope = EVERYTHING
    used = f"({per_run('memwatch.tree.memory.usage', scope=scope)} * {_active()})"
    active = f"({per_run('memwatch.run.active', scope=scope)})"
    peak = f"({_not_long_ago(per_run('memwatch.tree.memory.peak', scope=scope))})"
    of_rank = f"max by ({GROUP}, {RANK}) ({_with_group(peak)})"
    few = f"count by ({GROUP}) ({of_rank}) <= {RANKS_SHOWN}"
    return [
        Record(GROUP_USED, f"sum by ({GROUP}) ({_with_group(used)})"),
        Record(GROUP_RANKS, f"sum by ({GROUP}) ({_with_group(active)})"),
        Record(GROUP_LARGEST, f"max by ({GROUP}) ({_with_group(peak)})"),
        Record(GROUP_MEDIAN, f"quantile by ({GROUP}) (0.5, {_with_group(peak)})"),
        Record(
            RANK_PEAK, f"{of_rank} and on ({GROUP}) ({few}) or topk by ({GROUP}) ({RANKS_OF_MANY}, {of_rank})"
        ),
    ]


def _with_group(per_run_expression: str) -> str:
    return with_info(per_run_expression, GROUP_ID, RANK, scope=EVERYTHING, matchers=(f'{GROUP_ID}!=""',))


def _counted(by: str, how: str, code: str) -> str:
    return f'label_replace(count by ({by}) ({_with_task(_just_ended())} {code}), "ended", "{how}", "", "")'


def _with_task(per_run_expression: str, *matchers: str) -> str:
    labels = ("cicd_pipeline_name", "cicd_pipeline_task_name", BRANCH)
    return with_info(per_run_expression, *labels, scope=EVERYTHING, matchers=matchers, window=_LOOK_BACK)


def _just_ended() -> str:
    """Exit code of each run that ended `ARRIVAL_SECONDS` ago, at exactly one evaluation of the rules."""
    ago = f"(time() - {_latest('memwatch.run.end.time')})"
    window = f"({ago} >= {ARRIVAL_SECONDS} < {ARRIVAL_SECONDS + RULE_SECONDS})"
    return f"({_latest('memwatch.run.exit.code')} and {window})"


def _latest(metric: str) -> str:
    """The last value of each run within a longer time, because a scraped run disappears right after its end."""
    return last_per_run(metric, scope=EVERYTHING, window=_LOOK_BACK)


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({series(metric, scope=EVERYTHING, window='5m')}))"


def _not_long_ago(per_run_expression: str) -> str:
    """Exclude runs that ended long ago. A textfile keeps the last values of a run until it is deleted."""
    return f"{per_run_expression} unless {ended_long_ago()}"


def ended_long_ago() -> str:
    """Runs that ended too long ago for an alert."""
    return f"(time() - {per_run('memwatch.run.end.time', scope=EVERYTHING)} > {RECENT_SECONDS})"


def metrics_in(expression: str) -> list[str]:
    """`names_in`, plus the metrics behind the recorded series in the expression."""
    made_of = [rule.expression for rule in records() if rule.name in expression]
    return names_in(" ".join((expression, *made_of)))

"""CI: memory of test jobs on each branch relative to main, the largest growth, and the variation on main."""

from __future__ import annotations

from dashboards.board import Row, branch_variable, dashboard, fleet_variables, text_variable
from dashboards.boards.shared import BADLY, KILL_LEVELS, ROWS, TOP, ended, ended_badly
from dashboards.panels import (
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
from dashboards.promql import recorded
from dashboards.records import BRANCH, CI_LARGEST, CI_SMALLEST, OF_BRANCH, TASK
from dashboards.thresholds import REGRESSION

_LEGEND = "{{job}} {{cicd_pipeline_task_name}}"
_MAIN = f'{BRANCH}=~"$main"'
_BRANCHES = (f'{BRANCH}=~"$branch"', f'{BRANCH}!~"$main"')
_GROWTH_LEVELS = ((None, GREEN), (REGRESSION - 1, RED))
_VARIATION_LEVELS = ((None, GREEN), (REGRESSION - 1, YELLOW))
_COLUMNS = {
    "job": "Service",
    "cicd_pipeline_name": "Pipeline",
    "cicd_pipeline_task_name": "Job",
    BRANCH: "Branch",
}
_NO_BRANCH = "no run reports its branch"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-ci",
        "otel-memwatch / CI",
        "Test jobs of pipelines: peak by branch relative to main, the largest growth, and variation without a change.",
        [
            Row("Now", _now()),
            Row("Branches against main", _against_main()),
            Row("Main", _main()),
            Row("Ended badly", _ended_badly()),
        ],
        fleet_variables(text_variable("main", "Main branch (expression)", "main|master"), branch_variable()),
        since="now-7d",
        refresh="5m",
    )


def _largest(*matchers: str, by: str = TASK) -> str:
    """Largest peak in the dashboard's time range."""
    return f"max by ({by}) (max_over_time({recorded(CI_LARGEST, *matchers, window='$__range')}))"


def _smallest(*matchers: str, by: str = TASK) -> str:
    return f"min by ({by}) (min_over_time({recorded(CI_SMALLEST, *matchers, window='$__range')}))"


def _of_branches() -> str:
    return _largest(*_BRANCHES, by=f"{TASK}, {BRANCH}")


def _growth() -> str:
    """Growth of each test job on each branch, relative to the same job on main; 0 if equal."""
    return f"{_of_branches()} / on ({TASK}) group_left () {_largest(_MAIN)} - 1"


def _variation() -> str:
    """Relative difference between the largest and the smallest run of a test job on main."""
    return f"{_largest(_MAIN)} / {_smallest(_MAIN)} - 1"


def _now() -> list[Panel]:
    return [
        stat(
            "Test jobs",
            "short",
            "Jobs of pipelines that succeeded on main or a branch in the dashboard's time range.",
            Query(f"count ({_largest(OF_BRANCH)})", "test jobs"),
            unknown=_NO_BRANCH,
        ),
        stat(
            "Branches",
            "short",
            "Branches other than main with a job that succeeded.",
            Query(f"count ({_largest(*_BRANCHES, by=BRANCH)})", "branches"),
            unknown="no branch but main",
        ),
        stat(
            "Grew against main",
            "short",
            f"Test jobs with a peak on a branch more than {REGRESSION - 1:.0%} above their largest peak on main, in the "
            "dashboard's time range.",
            Query(f"sum ({_growth()} > bool {REGRESSION - 1:g})", "grew"),
            unknown="nothing to compare: no job ran both on main and on a branch",
            levels=KILL_LEVELS,
        ),
        stat(
            "Largest growth",
            "percentunit",
            "Largest growth of any test job on any branch, relative to the same job on main.",
            Query(f"max ({_growth()})", "growth"),
            unknown="nothing to compare: no job ran both on main and on a branch",
            levels=_GROWTH_LEVELS,
        ),
        stat(
            "Largest variation on main",
            "percentunit",
            "Relative difference between the largest and the smallest run of a test job on main. Smaller growth may be chance.",
            Query(f"max ({_variation()})", "variation"),
            unknown="no run on main",
            levels=_VARIATION_LEVELS,
        ),
        ended_badly(
            "Runs with a branch and an exit code other than 0. No other panel includes their peaks, because they may have ended "
            "before their peak.",
            OF_BRANCH,
        ),
    ]


def _against_main() -> list[Panel]:
    compared = f"topk({ROWS}, {_growth()})"
    of_rows = f"and on ({TASK}, {BRANCH})"
    return [
        bars(
            "Largest growth against main",
            "percentunit",
            "Largest peak on the branch relative to the largest on main, both in the dashboard's time range. For the confidence, "
            "run otel-memwatch compare in the job.",
            Query(f"topk({TOP}, {_growth()})", f"{_LEGEND} {{{{{BRANCH}}}}}"),
            levels=_GROWTH_LEVELS,
        ),
        timeseries(
            "Peak by branch",
            "bytes",
            "Largest peak of each branch's test jobs when they end. Select a service to see one job.",
            Query(
                f"topk({TOP}, max by ({BRANCH}) ({recorded(CI_LARGEST, _BRANCHES[0])}))", f"{{{{{BRANCH}}}}}"
            ),
            height=9,
        ),
        table(
            "Test jobs of branches",
            f"The {ROWS} with the largest growth. 'Needed' is the largest peak in the dashboard's time range.",
            _COLUMNS,
            TableColumn("Growth", "percentunit", compared, _GROWTH_LEVELS),
            TableColumn("Needed on the branch", "bytes", f"{_of_branches()} {of_rows} {compared}"),
            TableColumn(
                "Needed on main",
                "bytes",
                # Main's value is equal for all branches of a job; the join yields one row per branch.
                f"({_of_branches()} * 0 + on ({TASK}) group_left () {_largest(_MAIN)}) {of_rows} {compared}",
            ),
            height=12,
        ),
    ]


def _main() -> list[Panel]:
    return [
        timeseries(
            "Peak by test job on main",
            "bytes",
            "Largest peak of each test job when its runs on main end.",
            Query(f"topk({TOP}, max by ({TASK}) ({recorded(CI_LARGEST, _MAIN)}))", _LEGEND),
            height=9,
        ),
        bars(
            "Largest variation without a change",
            "percentunit",
            "Relative difference between the largest and the smallest run of a test job on main, in the dashboard's time range. "
            "Either the program changed, or its memory varies from run to run. In that case, one run says little about a branch.",
            Query(f"topk({TOP}, {_variation()})", _LEGEND),
            levels=_VARIATION_LEVELS,
        ),
    ]


def _ended_badly() -> list[Panel]:
    return [
        table(
            "Runs that ended badly",
            "Runs by test job and branch: killed (exit code 137), or any other code except 0. The OOM killer sends SIGKILL, which gives 137.",
            {**_COLUMNS, "ended": "Ended"},
            TableColumn("Runs", "short", f"sum by ({TASK}, {BRANCH}, ended) ({ended(OF_BRANCH, BADLY)})"),
        ),
    ]

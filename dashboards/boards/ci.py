"""CI: what test jobs need, branch by branch against main; which grew most, and whose need varies by itself."""

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
_NO_BRANCH = "no run says its branch"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-ci",
        "otel-memwatch / CI",
        "Test jobs of pipelines: peak by branch against main, the largest growth, memory that varies by itself.",
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
    """Largest peak within the dashboard's time."""
    return f"max by ({by}) (max_over_time({recorded(CI_LARGEST, *matchers, window='$__range')}))"


def _smallest(*matchers: str, by: str = TASK) -> str:
    return f"min by ({by}) (min_over_time({recorded(CI_SMALLEST, *matchers, window='$__range')}))"


def _of_branches() -> str:
    return _largest(*_BRANCHES, by=f"{TASK}, {BRANCH}")


def _growth() -> str:
    """Growth of each test job on each branch, against the same job on main; 0 where it is the same."""
    return f"{_of_branches()} / on ({TASK}) group_left () {_largest(_MAIN)} - 1"


def _variation() -> str:
    """How much more the largest run of a test job on main needed than the smallest."""
    return f"{_largest(_MAIN)} / {_smallest(_MAIN)} - 1"


def _now() -> list[Panel]:
    return [
        stat(
            "Test jobs",
            "short",
            "Jobs of pipelines that ended well on main or a branch within the dashboard's time.",
            Query(f"count ({_largest(OF_BRANCH)})", "test jobs"),
            unknown=_NO_BRANCH,
        ),
        stat(
            "Branches",
            "short",
            "Branches other than main on which one did.",
            Query(f"count ({_largest(*_BRANCHES, by=BRANCH)})", "branches"),
            unknown="no branch but main",
        ),
        stat(
            "Grew against main",
            "short",
            f"Test jobs that need more than {REGRESSION - 1:.0%} more on a branch than they ever did on main within the "
            "dashboard's time.",
            Query(f"sum ({_growth()} > bool {REGRESSION - 1:g})", "grew"),
            unknown="nothing to compare: no job ran both on main and on a branch",
            levels=KILL_LEVELS,
        ),
        stat(
            "Largest growth",
            "percentunit",
            "Of any test job on any branch, against the same job on main.",
            Query(f"max ({_growth()})", "growth"),
            unknown="nothing to compare: no job ran both on main and on a branch",
            levels=_GROWTH_LEVELS,
        ),
        stat(
            "Largest variation on main",
            "percentunit",
            "How much more a test job's largest run on main needed than its smallest. Growth below this may be chance.",
            Query(f"max ({_variation()})", "variation"),
            unknown="no run of main is known",
            levels=_VARIATION_LEVELS,
        ),
        ended_badly(
            "Runs that know their branch and ended with an exit code other than 0. Their peaks are in no other panel: they may have "
            "ended before they needed most.",
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
            "Largest peak of the branch against the largest on main, both within the dashboard's time. otel-memwatch compare, in the "
            "job itself, knows how surely.",
            Query(f"topk({TOP}, {_growth()})", f"{_LEGEND} {{{{{BRANCH}}}}}"),
            levels=_GROWTH_LEVELS,
        ),
        timeseries(
            "Peak by branch",
            "bytes",
            "Largest peak of the test jobs of each branch as they end. Choose a service to see one job.",
            Query(
                f"topk({TOP}, max by ({BRANCH}) ({recorded(CI_LARGEST, _BRANCHES[0])}))", f"{{{{{BRANCH}}}}}"
            ),
            height=9,
        ),
        table(
            "Test jobs of branches",
            f"The {ROWS} that grew most. Needed are the largest peaks within the dashboard's time.",
            _COLUMNS,
            TableColumn("Growth", "percentunit", compared, _GROWTH_LEVELS),
            TableColumn("Needed on the branch", "bytes", f"{_of_branches()} {of_rows} {compared}"),
            TableColumn(
                "Needed on main",
                "bytes",
                # The same for each branch of a job: multiplied by one for each branch, so that the rows are the branches'.
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
            "Largest peak of each test job as its runs on main end.",
            Query(f"topk({TOP}, max by ({TASK}) ({recorded(CI_LARGEST, _MAIN)}))", _LEGEND),
            height=9,
        ),
        bars(
            "Varies most by itself",
            "percentunit",
            "How much more the largest run of a test job on main needed than the smallest within the dashboard's time: a change of "
            "the program, or memory that varies from run to run. Where it does, one run says little about a branch.",
            Query(f"topk({TOP}, {_variation()})", _LEGEND),
            levels=_VARIATION_LEVELS,
        ),
    ]


def _ended_badly() -> list[Panel]:
    return [
        table(
            "Runs that ended badly",
            "Runs by test job and branch: killed (exit code 137: SIGKILL, which the OOM killer sends), or any other code but 0.",
            {**_COLUMNS, "ended": "Ended"},
            TableColumn("Runs", "short", f"sum by ({TASK}, {BRANCH}, ended) ({ended(OF_BRANCH, BADLY)})"),
        ),
    ]

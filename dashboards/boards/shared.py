"""Panels and pieces that several dashboards share."""

from __future__ import annotations

from dashboards.measures import OOM_KILL
from dashboards.panels import GREEN, GREY, RED, YELLOW, Json, Panel, Query, stat
from dashboards.promql import DASHBOARD, RUN, last, recorded, series
from dashboards.records import ENDED
from dashboards.thresholds import LIMIT_NEAR, LIMIT_WARNING

TOP, ROWS = 20, 200
"""Curves or bars of a panel, and rows of a table, at most."""

SHARE_LEVELS = ((None, GREEN), (LIMIT_WARNING, YELLOW), (LIMIT_NEAR, RED))
KILL_LEVELS = ((None, GREEN), (1.0, RED))

BADLY = 'ended!="well"'
"""Matcher for `ended`: an exit code other than 0."""

DEVICE, DEVICE_LEGEND = "hw_id, hw_name", "{{hw_name}} {{hw_id}}"
"""Labels that identify one GPU, and its name."""

RUN_STATES: Json = {
    "type": "value",
    "options": {
        "-1": {"text": "running", "color": "blue", "index": 0},
        "0": {"text": "ended well (0)", "color": GREEN, "index": 1},
        "-2": {"text": "ended, code unknown", "color": GREY, "index": 2},
        "137": {"text": "killed (137)", "color": RED, "index": 3},
        "139": {"text": "crashed (139)", "color": RED, "index": 4},
        "143": {"text": "terminated (143)", "color": YELLOW, "index": 5},
    },
}
"""Texts for the values of `state_of_run`."""


def state_of_run(scope: tuple[str, ...] = DASHBOARD) -> str:
    """Exit code of each run; -1 while it runs; -2 if it ended with an unknown code."""
    code = f"max by ({RUN}) ({last('memwatch.run.exit.code', scope=scope)})"
    active = f"max by ({RUN}) ({last('memwatch.run.active', scope=scope)})"
    return f"{code} or {active} - 2"


def of_device(metric: str, *matchers: str) -> str:
    """One value for each GPU, even if several runs sample it."""
    return f"max by ({DEVICE}) ({series(metric, *matchers)})"


def ended(*matchers: str) -> str:
    """Number of runs that ended in the dashboard's time range."""
    return f"sum_over_time({recorded(ENDED, *matchers, window='$__range')})"


def ended_badly(words: str, *matchers: str) -> Panel:
    """Number of runs that ended with an exit code other than 0."""
    return stat(
        "Ended badly",
        "short",
        words,
        # No failed run is 0, but only if runs ended at all.
        Query(f"sum ({ended(*matchers, BADLY)}) or sum ({ended(*matchers)}) * 0", "ended badly"),
        unknown="no run has ended",
        levels=((None, GREEN), (1, YELLOW)),
    )


def oom_kills(width: int = 4, scope: tuple[str, ...] = DASHBOARD) -> Panel:
    """Kills in the dashboard's time range."""
    kills = last("memwatch.cgroup.memory.events", OOM_KILL, scope=scope)
    return stat(
        "OOM kills",
        "short",
        "Processes that the kernel's OOM killer killed in the cgroups of these runs, since the creation of each cgroup. "
        "This is the counter itself; an increase would omit a kill before the second sample.",
        Query(f"sum (max by ({RUN}) ({kills}))", "OOM kills"),
        unknown="not recorded",
        levels=KILL_LEVELS,
        width=width,
    )

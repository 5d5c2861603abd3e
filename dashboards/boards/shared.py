"""Panels and pieces that several dashboards have."""

from __future__ import annotations

from dashboards.measures import OOM_KILL
from dashboards.panels import GREEN, GREY, RED, YELLOW, Json, Panel, Query, stat
from dashboards.promql import DASHBOARD, RUN, last
from dashboards.thresholds import LIMIT_NEAR, LIMIT_WARNING

SHARE_LEVELS = ((None, GREEN), (LIMIT_WARNING, YELLOW), (LIMIT_NEAR, RED))
KILL_LEVELS = ((None, GREEN), (1.0, RED))

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
"""Of `state_of_run`."""


def state_of_run(scope: tuple[str, ...] = DASHBOARD) -> str:
    """The exit code of each run; -1 while it runs; -2 where it ended and its code is not known."""
    code = f"max by ({RUN}) ({last('memwatch.run.exit.code', scope=scope)})"
    active = f"max by ({RUN}) ({last('memwatch.run.active', scope=scope)})"
    return f"{code} or {active} - 2"


def oom_kills(width: int = 4, scope: tuple[str, ...] = DASHBOARD) -> Panel:
    """Kills within the dashboard's time."""
    kills = last("memwatch.cgroup.memory.events", OOM_KILL, scope=scope)
    return stat(
        "OOM kills",
        "short",
        "Processes that the kernel's OOM killer ended in the control groups of these runs, since each group was made. "
        "The counter itself is shown: an increase would leave out a kill that came before the second sample.",
        Query(f"sum (max by ({RUN}) ({kills}))", "OOM kills"),
        unknown="not recorded",
        levels=KILL_LEVELS,
        width=width,
    )

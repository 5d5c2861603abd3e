"""What dashboards and alerts both look at, so that they cannot differ."""

from __future__ import annotations

from dashboards.promql import DASHBOARD, RUN, last_per_run, per_run

CGROUP_LIMIT = 'memwatch_cgroup_limit_type="max"'
OOM_KILL = 'memwatch_cgroup_memory_event_type="oom_kill"'

Scope = tuple[str, ...]


def _of_run(metric: str, matcher: str, scope: Scope, how: str, *, ended: bool) -> str:
    if ended:
        return last_per_run(metric, *filter(None, (matcher,)), how=how, scope=scope)
    return per_run(metric, *filter(None, (matcher,)), scope=scope, how=how)


def limit(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """Memory limit of each run's control group; nothing for a run without.

    Here and below, with `ended` the last values within the dashboard's time: runs that have ended are in it.
    """
    return _of_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, scope, "min", ended=ended)


def available(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """Memory that each run can have: its control group's limit, else the machine's memory."""
    machine = _of_run("system.memory.limit", "", scope, "max", ended=ended)
    return f"({limit(scope, ended=ended)} or {machine})"


def charged(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """Memory of each run's control group that the kernel cannot drop: what counts against the limit in earnest."""
    return _of_run("memwatch.cgroup.memory.working_set", "", scope, "max", ended=ended)


def used(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """What stands against `available`: of the group where that has a limit, else of the whole machine."""
    machine = _of_run("system.memory.usage", 'system_memory_state="used"', scope, "max", ended=ended)
    return f"(({charged(scope, ended=ended)} and {limit(scope, ended=ended)}) or {machine})"


def used_share(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """`used` of `available`, 0 to 1."""
    return f"{used(scope, ended=ended)} / {available(scope, ended=ended)}"


def share_of_limit(scope: Scope = DASHBOARD, *, ended: bool = False) -> str:
    """What counts of a run's control group against its limit, 0 to 1; nothing for a run without a limit."""
    return f"{charged(scope, ended=ended)} / {limit(scope, ended=ended)}"


def gpu_share(scope: Scope = DASHBOARD) -> str:
    """Used share of each GPU's memory, as each run sees it."""
    by = f"{RUN}, hw_id"
    usage = per_run("hw.gpu.memory.usage", scope=scope).replace(RUN, by)
    total = per_run("hw.gpu.memory.limit", scope=scope).replace(RUN, by)
    return f"{usage} / {total}"

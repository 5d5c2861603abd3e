"""What dashboards and alerts both look at, so that they cannot differ."""

from __future__ import annotations

from dashboards.promql import DASHBOARD, RUN, last_per_run, per_run, series

CGROUP_LIMIT = 'memwatch_cgroup_limit_type="max"'
OOM_KILL = 'memwatch_cgroup_memory_event_type="oom_kill"'

Scope = tuple[str, ...]


def _of_run(metric: str, *matchers: str, scope: Scope, window: str, how: str = "max") -> str:
    if window:
        return last_per_run(metric, *matchers, how=how, scope=scope, window=window)
    return per_run(metric, *matchers, scope=scope, how=how)


def limit(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Memory limit of each run's control group; nothing for a run without.

    Here and below, with `window` the last values within that time: runs that have ended are in it.
    """
    return _of_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, scope=scope, window=window, how="min")


def available(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Memory that each run can have: its control group's limit, else the machine's memory."""
    machine = _of_run("system.memory.limit", scope=scope, window=window)
    return f"({limit(scope, window=window)} or {machine})"


def charged(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Memory of each run's control group that the kernel cannot drop: what counts against the limit in earnest."""
    return _of_run("memwatch.cgroup.memory.working_set", scope=scope, window=window)


def used(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """What stands against `available`: of the group where that has a limit, else of the whole machine."""
    machine = _of_run("system.memory.usage", 'system_memory_state="used"', scope=scope, window=window)
    return f"(({charged(scope, window=window)} and {limit(scope, window=window)}) or {machine})"


def used_share(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """`used` of `available`, 0 to 1."""
    return f"{used(scope, window=window)} / {available(scope, window=window)}"


def share_of_limit(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """What counts of a run's control group against its limit, 0 to 1; nothing for a run without a limit."""
    return f"{charged(scope, window=window)} / {limit(scope, window=window)}"


def gpu_share(scope: Scope = DASHBOARD) -> str:
    """Used share of each GPU's memory, as each run sees it."""
    by = f"{RUN}, hw_id"
    usage, total = (series(f"hw.gpu.memory.{what}", scope=scope) for what in ("usage", "limit"))
    return f"max by ({by}) ({usage}) / max by ({by}) ({total})"

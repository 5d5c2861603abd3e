"""Measures that dashboards and alerts share, so they cannot differ."""

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
    """Memory limit of each run's cgroup; nothing without a limit.

    Here and below, `window` selects the last values in that time range, which includes ended runs.
    """
    return _of_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, scope=scope, window=window, how="min")


def available(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Memory available to each run: its cgroup's limit, otherwise the machine's memory."""
    machine = _of_run("system.memory.limit", scope=scope, window=window)
    return f"({limit(scope, window=window)} or {machine})"


def charged(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Unreclaimable memory of each run's cgroup, which counts against the limit."""
    return _of_run("memwatch.cgroup.memory.working_set", scope=scope, window=window)


def used(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Used part of `available`: of the cgroup if it has a limit, otherwise of the whole machine."""
    machine = _of_run("system.memory.usage", 'system_memory_state="used"', scope=scope, window=window)
    return f"(({charged(scope, window=window)} and {limit(scope, window=window)}) or {machine})"


def used_share(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """`used` of `available`, 0 to 1."""
    return f"{used(scope, window=window)} / {available(scope, window=window)}"


def share_of_limit(scope: Scope = DASHBOARD, *, window: str = "") -> str:
    """Used share of a run's cgroup limit, 0 to 1; nothing without a limit."""
    return f"{charged(scope, window=window)} / {limit(scope, window=window)}"


def gpu_share(scope: Scope = DASHBOARD) -> str:
    """Used share of each GPU's memory, as each run sees it."""
    by = f"{RUN}, hw_id"
    usage, total = (series(f"hw.gpu.memory.{what}", scope=scope) for what in ("usage", "limit"))
    return f"max by ({by}) ({usage}) / max by ({by}) ({total})"

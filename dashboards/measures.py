"""What dashboards and alerts both look at, so that they cannot differ."""

from __future__ import annotations

from dashboards.promql import DASHBOARD, per_run

CGROUP_LIMIT = 'memwatch_cgroup_limit_type="max"'
OOM_KILL = 'memwatch_cgroup_memory_event_type="oom_kill"'

Scope = tuple[str, ...]


def limit(scope: Scope = DASHBOARD) -> str:
    """Memory limit of each run's control group; nothing for a run without."""
    return per_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, scope=scope, how="min")


def available(scope: Scope = DASHBOARD) -> str:
    """Memory that each run can have: its control group's limit, else the machine's memory."""
    return f"({limit(scope)} or {per_run('system.memory.limit', scope=scope)})"


def charged(scope: Scope = DASHBOARD) -> str:
    """Memory of each run's control group that the kernel cannot drop: what counts against the limit in earnest."""
    return per_run("memwatch.cgroup.memory.working_set", scope=scope)


def used(scope: Scope = DASHBOARD) -> str:
    """What stands against `available`: of the group where that has a limit, else of the whole machine."""
    machine = per_run("system.memory.usage", 'system_memory_state="used"', scope=scope)
    return f"(({charged(scope)} and {limit(scope)}) or {machine})"


def used_share(scope: Scope = DASHBOARD) -> str:
    """`used` of `available`, 0 to 1."""
    return f"{used(scope)} / {available(scope)}"


def gpu_share(scope: Scope = DASHBOARD) -> str:
    """Used share of each GPU's memory, as each run sees it."""
    by = "job, instance, hw_id"
    usage = per_run("hw.gpu.memory.usage", scope=scope).replace("job, instance", by)
    total = per_run("hw.gpu.memory.limit", scope=scope).replace("job, instance", by)
    return f"{usage} / {total}"

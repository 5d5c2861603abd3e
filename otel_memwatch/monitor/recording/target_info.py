"""The target, as the recording gets it."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.monitor.guard.guard import Guard
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup
    from otel_memwatch.runtime.procfs.system import AllocationCounters


class TargetInfo(NamedTuple):
    """Facts about the target that the monitor needs; `wrap` started it, `attach` and `watch` have joined it."""

    mode: str
    """"wrap", "attach" or "watch"."""
    argv: tuple[str, ...]
    pid: int
    started: float
    """Start of the run in monotonic seconds: the start of the command, or the moment of joining it."""
    environment: Mapping[str, str] = {}
    """Its environment at its start; empty if unreadable."""
    floor: int = 0
    """Bytes up to which wait4's maximum is the launcher's, not the target's; 0: we did not launch it."""
    own_cgroup: OwnCgroup | None = None
    """The cgroup made for the run, if the target is in it."""
    group: TargetGroup | None = None
    """The cgroup that is the target; `pid` is its main process."""
    cgroup_hint: str | None = None
    """Advice for a dedicated cgroup, if it has none."""
    guard: Guard | None = None
    """The guard that may end it."""
    helpers: frozenset[int] = frozenset()
    """Pids of our processes beside the target, which are never counted."""
    allocated_before: AllocationCounters | None = None
    """Memory that the machine had allocated before the target started; `None`: unknown, or we did not start it."""

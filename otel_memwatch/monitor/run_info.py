"""What is watched, and how `run.json` describes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_memwatch._version import __version__
from otel_memwatch.record.namespace import pid_namespace
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.monitor.sources.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.trace_context import TraceContext


class Watched:
    """What is watched, as far as the monitor has to know it."""

    def __init__(
        self,
        mode: str,
        argv: Sequence[str],
        pid: int,
        started: float,
        *,
        floor: int = 0,
        own_cgroup: OwnCgroup | None = None,
        cgroup_hint: str | None = None,
        environment: Mapping[str, str] | None = None,
        helpers: frozenset[int] = frozenset(),
    ) -> None:
        self.mode = mode
        self.argv = tuple(argv)
        self.pid = pid
        self.started = started
        self.floor = floor
        self.own_cgroup = own_cgroup
        self.cgroup_hint = cgroup_hint
        """What would give it a group of its own, where it has none."""
        self.environment = environment or {}
        self.helpers = helpers
        """Pids of our own processes beside the target."""


def description(
    directory: Path, target: Watched, settings: Mapping[str, Any], trace: TraceContext
) -> dict[str, Any]:
    """The fields of `run.json` that are known at the start; see `record.format`."""
    now = time.monotonic()
    machine = os.uname()
    return {
        "id": directory.name,
        "command": list(target.argv),
        "cwd": _working_directory(),
        "target": {"pid": target.pid, "start": target.started, "floor": target.floor},
        "host": {
            "name": machine.nodename,
            "system": machine.sysname,
            "release": machine.release,
            "machine": machine.machine,
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_bytes": host_memory(),
        },
        "monitor": {
            "version": __version__,
            "pid": os.getpid(),
            "pid_namespace": pid_namespace(),
            "python": sys.version.split()[0],
            "mode": target.mode,
        },
        "started": {"wall": time.time() - (now - target.started), "monotonic": target.started},
        "ended": None,
        "interval": settings["interval"],
        "settings": dict(settings),
        "own_cgroup": str(target.own_cgroup.path) if target.own_cgroup else None,
        "cgroup_hint": target.cgroup_hint,
        "trace": {
            "trace_id": trace.trace_id,
            "span_id": trace.span_id,
            "parent_span_id": trace.parent_span_id,
            "flags": trace.flags,
        },
    }


def _working_directory() -> str | None:
    """Path of the working directory; `None` where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def host_memory() -> int:
    """Memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def address_space_limit(pid: int) -> int | None:
    """RLIMIT_AS of the process in bytes; `None`: none, or not to be had."""
    import resource

    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
    except (AttributeError, OSError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft

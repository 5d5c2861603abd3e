"""The target as the recording gets it, and the fields of `run.json` about it and about the parts of the monitor."""

from __future__ import annotations

import os
import sys
import time

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.config import shortest_interval
from otel_memwatch.model import ProcessNote
from otel_memwatch.record.namespace import pid_namespace
from otel_memwatch.record.tags import engine_tags, input_bytes
from otel_memwatch.runtime.kernel import processors, read_once, usable_processors
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Attributes, Column, Snapshot
    from otel_memwatch.monitor.guard.guard import Guard
    from otel_memwatch.monitor.recording.trace_context import TraceContext
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup
    from otel_memwatch.monitor.sampling.sampler import Sampler
    from otel_memwatch.record.writer import RunWriter
    from otel_memwatch.runtime.procfs.system import AllocationCounters

    MetricSeries = tuple[str, Attributes]
    """A metric and the attributes of one of its columns."""

OOM_KILLS: MetricSeries = (
    catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
    (("memwatch.cgroup.memory.event.type", "oom_kill"),),
)
LIMIT: MetricSeries = catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, (("memwatch.cgroup.limit.type", "max"),)
PEAK: MetricSeries = catalog.MEMWATCH_CGROUP_MEMORY_PEAK, ()

FIRST_OF_ITS_KIND: dict[str | None, str] = {
    ProcessNote.LEFT_CGROUP: "processes left the run's cgroup: {} was the first one seen outside. "
    "The tree's memory is therefore a range, without an upper bound from the group",
    ProcessNote.WATERMARK_RESET: "another program reset the watermark of {}: its earlier peak may be unknown, and it has "
    "no upper bound",
}
"""Marks in the record for the first process with such a note."""

_CONTAINER_LEFT = (
    "the container is not in the run's cgroup ({} was the first process seen outside), so this peak is a range. "
    "The peak of a recorded container is in its own run"
)
"""Mark if the target is the client of a container engine."""


def mark_of(note: str, process: str, argv: Sequence[str]) -> str:
    """Return the mark in the record for the first process with a note of `FIRST_OF_ITS_KIND`.

    Args:
        note: of the process.
        process: its name and PID.
        argv: of the target.
    """
    from otel_memwatch.run.container_client import client_of

    is_client = note == ProcessNote.LEFT_CGROUP and client_of(argv) is not None
    return (_CONTAINER_LEFT if is_client else FIRST_OF_ITS_KIND[note]).format(process)


def start_fields(
    directory: str, target: TargetInfo, settings: Mapping[str, Any], trace: TraceContext
) -> dict[str, Any]:
    """Return the fields of `run.json` at the start; see `record.format`."""
    now = time.monotonic()
    machine = os.uname()
    group = target.own_cgroup or target.group
    working_directory = None
    with suppress(OSError):  # it has been removed
        working_directory = os.getcwd()
    return {
        "id": os.path.basename(directory),
        "name": settings["name"],
        "tags": dict(settings["tag"]),
        "command": list(target.argv),
        "cwd": working_directory,
        "input_bytes": input_bytes(target.argv, "." if target.mode == "wrap" else f"/proc/{target.pid}/cwd"),
        "target": {
            "pid": target.pid,
            "start": target.started,
            "floor": target.floor,
            "faults_before": target.faults_before,
        },
        "host": {
            "name": machine.nodename,
            "system": machine.sysname,
            "release": machine.release,
            "machine": machine.machine,
            "cpus": usable_processors(),
            "memory_bytes": host_memory(),
            "swap_bytes": host_swap(),
            "disk_rate": disk_rate(os.curdir),
        },
        "processors": processors(),
        "monitor": {
            "version": __version__,
            "pid": os.getpid(),
            "pid_namespace": pid_namespace(),
            "python": sys.version.split()[0],
            "mode": target.mode,
        },
        "started": {"wall": time.time() - (now - target.started), "monotonic": target.started},
        "ended": None,
        "interval": shortest_interval(settings["interval"]),
        # "exact" marks records of old releases that reset watermarks. The option is ignored now.
        "settings": {**settings, "exact": False},
        "allocator": {
            name: value
            for name, value in target.environment.items()
            if name.startswith(_ALLOCATORS) or name in ("LD_PRELOAD", "GLIBC_TUNABLES")
        },
        "own_cgroup": group.path if group else None,
        "cgroup_version": group.version if group else None,
        "target_group": {"kind": target.group.kind, "name": target.group.name, "born": target.group.born}
        if target.group
        else None,
        "cgroup_hint": target.cgroup_hint,
        "trace": trace._asdict(),
    }


def note_identity(writer: RunWriter, target: TargetInfo, settings: Mapping[str, Any]) -> None:
    """Note the run's resource, CI job, tags and group, and the host's clock."""
    from otel_memwatch.record.git_head import git_head
    from otel_memwatch.record.identity import clock_fields, group_attributes, identity
    from otel_memwatch.record.request import request_of
    from otel_memwatch.record.resource import ci_attributes, resource_attributes

    info, environment = writer.info, target.environment
    resource = resource_attributes(info, environment)
    own = identity(environment, resource, settings["group"], settings["rank"])
    request = request_of(environment)
    writer.note(
        group=None if own is None else own._asdict(),
        clock=clock_fields(),
        asked=None if request is None else request._asdict(),
    )
    if own is not None:
        for name, value in group_attributes(own).items():
            resource.setdefault(name, value)
    near = os.getppid() if target.mode == "wrap" else target.pid
    # Tags from the user override those of an engine.
    tags = {
        **engine_tags(environment, info.get("cwd"), resource, near, argv=target.argv),
        **info.get("tags", {}),
    }
    ci = ci_attributes(environment)
    writer.note(resource=resource, ci=ci, vcs=git_head(info.get("cwd") or "/"), tags=tags)


_ALLOCATORS = ("MALLOC_", "MIMALLOC_", "JEMALLOC_", "TCMALLOC_", "PYTHONMALLOC")
"""Prefixes of environment variables that configure allocators."""


def host_memory() -> int:
    """Return the memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def host_swap() -> int | None:
    """Return the swap space of the machine in bytes; `None`: unknown, as without /proc. Costs 50 us."""
    from otel_memwatch.runtime.procfs.system import parse_memory

    try:
        return parse_memory(read_once("/proc/meminfo")).swap_total
    except (OSError, ValueError):
        return None


def disk_rate(directory: str) -> int | None:
    """Return the bytes that a directory's disk moved in each second of its activity since the machine started. Costs 30 us.

    `None`: no disk of this machine, as in tmpfs, NFS and overlays, or it was active for less than a second.
    """
    try:
        device = os.stat(directory).st_dev
        fields = [
            int(field)
            for field in read_once(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").split()
        ]
        sectors_read, sectors_written, milliseconds = fields[2], fields[6], fields[9]
    except (OSError, ValueError, IndexError):
        return None
    return (sectors_read + sectors_written) * 512_000 // milliseconds if milliseconds >= 1000 else None


def address_space_limit(pid: int) -> int | None:
    """Return RLIMIT_AS of the process in bytes; `None`: none, or unreadable."""
    import resource

    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
    except (AttributeError, OSError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def group_value(columns: Sequence[Column], snapshot: Snapshot | None, series: MetricSeries) -> int | None:
    """Return the value of a series of the cgroup in a snapshot; `None`: absent or unknown."""
    if snapshot is None:
        return None
    for column, value in zip(columns, snapshot.values, strict=True):
        if column[:2] == series:
            return None if value is None else int(value)
    return None


def health_fields(sampler: Sampler) -> dict[str, dict[str, Any]]:
    """Return the state of each source, for the field "sources"."""
    return {
        name: {
            "state": "ok" if state.up else "failed",
            "hint": state.error,
            "reads": state.reads,
            "failures": state.failures,
            "stretched": state.stretched,
            "seconds": round(state.seconds, 6),
        }
        for name, state in sampler.health().items()
    }


def gpu_fields(sources: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the GPU sources' descriptions of their devices, for the field "gpus"."""
    from otel_memwatch.monitor.sampling.sources import GPU_SOURCES

    return [device for source in sources if source.name in GPU_SOURCES for device in source.info()]


def may_export(settings: Mapping[str, Any]) -> bool:
    """Return whether options or variables of OpenTelemetry may request telemetry; if not, it is not imported."""
    return any(settings[name] for name in ("otlp", "prometheus", "textfile")) or any(
        name.startswith("OTEL_") and not name.startswith("OTEL_MEMWATCH_") for name in os.environ
    )


def moment(monotonic: float) -> dict[str, float]:
    """Return a moment of the monotonic clock on both clocks, as in `run.json`."""
    return {"wall": time.time() - (time.monotonic() - monotonic), "monotonic": monotonic}


def absence(why: Exception) -> dict[str, Any]:
    """Return the entry of an absent source in `run.json`."""
    # Imported here because the launcher imports this module before the target starts.
    from otel_memwatch.monitor.sampling.sources import SilentDriver

    return {
        "state": "unavailable",
        "hint": str(why),
        **({"silent": True} if isinstance(why, SilentDriver) else {}),
    }


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
    faults_before: int | None = None
    """Page faults of the target before it entered `own_cgroup`; `None`: not counted."""
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

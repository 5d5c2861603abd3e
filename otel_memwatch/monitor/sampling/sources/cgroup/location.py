"""Location of the files of the target's cgroup."""

from __future__ import annotations

import os

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.control_group import (
    Location,
    Mount,
    ancestors,
    locate,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.procfs.process import is_exiting, parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.monitor.sampling.sources import Context

_ENDED = ("Z", "X")
"""States of processes that have ended."""


class Groups(NamedTuple):
    """Directories of the cgroup."""

    version: int
    """Version of the hierarchy with the memory controller."""
    memory: str
    above: tuple[str, ...]
    """`memory` and the visible cgroups above it: their limits apply too."""
    cpu: str | None
    """Directory of cpu.stat; version 1 has it in a separate hierarchy."""
    pressure: str | None
    """Directory of the pressure files: only version 2 has them."""
    own: bool
    """The cgroup was made for this run and counts nothing else."""
    target: bool = False
    """The cgroup is the target: it counts nothing else, and its watermark is only read."""


def _membership(context: Context) -> bytes:
    """Return /proc/PID/cgroup of the target, or ours.

    Ours is correct if the target is our child. It is needed in two cases:

    - it has ended or is ending: it is listed in the root group, but it was in our cgroup;
    - /proc belongs to another PID namespace: the target cannot be found in it.
    """
    if context.target_group is not None:
        return read_once(f"{context.proc}/self/cgroup")  # any process shows the version and the mount
    ours = f"{context.proc}/self/cgroup"
    if context.adopt and shows_others(context.proc):
        return read_once(ours)
    try:
        data = read_once(f"{context.proc}/{context.root}/cgroup")
        if not context.adopt:
            return data
        # The state last: the target may end at any moment, and lies in the root group from its exit on.
        stat = read_once(f"{context.proc}/{context.root}/stat")
    except OSError:
        if not context.adopt:
            raise
        return read_once(ours)
    return read_once(ours) if is_exiting(stat) or parse_stat(stat).state in _ENDED else data


def find(context: Context) -> Groups:
    """Find the directories of the target. Raises `Unavailable` if no memory cgroup of it can be read."""
    try:
        memberships = parse_memberships(_membership(context))
        mounts = parse_mounts(read_once(f"{context.proc}/self/mountinfo"))
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}.", "it requires a kernel with cgroups"
        ) from None
    location = locate(memberships, mounts, "memory")
    if location is None:
        raise Unavailable("No memory cgroup is mounted.", "mount cgroup2 on /sys/fs/cgroup")
    usage = "memory.usage_in_bytes" if location.version == 1 else "memory.current"
    own, target = context.own_cgroup, context.target_group
    if own is not None or target is not None:
        # Also if the target has ended or left: a dead process is listed in the root group.
        location = location._replace(path=str(target) if own is None else own.path)
    chain = ancestors(location)
    readable = next((i for i, group in enumerate(chain) if os.access(f"{group}/{usage}", os.R_OK)), None)
    if readable is None:
        raise Unavailable(
            f"{location.path} has no memory accounting.",
            "the root cgroup has none; use a container or systemd-run --scope",
        )
    if (own is not None or target is not None) and readable > 0:
        # The groups above hold other programs: 20 GiB were reported for a command of 1 MiB.
        raise Unavailable(f"The run's cgroup {chain[0]} is gone or unreadable.", "run the command again")
    chain = chain[readable:]
    cpu, pressure = locate(memberships, mounts, "cpu"), locate(memberships, mounts, None)
    if target is not None:
        # Version 1 has other groups for the CPU: those of the target's main process.
        cpu = location if location.version == 2 else _cpu_of(context, mounts)
        pressure = location if location.version == 2 else None
    return Groups(
        location.version,
        chain[0],
        tuple(chain),
        _with_file(cpu, "cpu.stat"),
        _with_file(pressure, "memory.pressure"),
        own is not None,
        target is not None,
    )


def _cpu_of(context: Context, mounts: Sequence[Mount]) -> Location | None:
    try:
        data = read_once(f"{context.proc}/{context.root}/cgroup")
    except OSError:
        return None
    return locate(parse_memberships(data), mounts, "cpu")


def _with_file(location: Location | None, name: str) -> str | None:
    """Return the nearest cgroup with the file, from the target's upwards.

    The root of the whole version 2 hierarchy (without cgroup.type) does not count: its figures are the machine's.
    """
    if location is None:
        return None
    for group in ancestors(location):
        if os.access(f"{group}/{name}", os.R_OK):
            return group if location.version == 1 or os.access(f"{group}/cgroup.type", os.R_OK) else None
    return None

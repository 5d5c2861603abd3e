"""Where the files of the target's control group are."""

from __future__ import annotations

import os

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.procfs.control_group import (
    Location,
    ancestors,
    locate,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context

_ENDED = ("Z", "X")
"""States of processes that have ended."""


class Groups(NamedTuple):
    """The group's directories."""

    version: int
    """Of the hierarchy that has the memory controller."""
    memory: str
    above: tuple[str, ...]
    """`memory` and the groups above it that can be seen: their limits apply too."""
    cpu: str | None
    """Where cpu.stat is; version 1 has it in a hierarchy of its own."""
    pressure: str | None
    """Where the pressure files are: only version 2 has them."""
    own: bool
    """The group was made for this run: nothing else is counted."""


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _membership(context: Context) -> bytes:
    """/proc/PID/cgroup of the target, or of ourselves where our child has ended already: it was in our group.

    The same where /proc numbers processes otherwise than we do, and the target cannot be found in it.
    One that has ended and was not waited for yet is shown in the root group, which is not its own.
    """
    if context.adopt and (shows_others(context.proc) or _has_ended(context, context.root)):
        return _read(f"{context.proc}/self/cgroup")
    return _read(f"{context.proc}/{context.root}/cgroup")


def _has_ended(context: Context, pid: int) -> bool:
    try:
        return parse_stat(_read(f"{context.proc}/{pid}/stat")).state in _ENDED
    except OSError:
        return True


def find(context: Context) -> Groups:
    """Find the groups of the target. Raises `Unavailable` when no memory group of it can be read."""
    try:
        memberships = parse_memberships(_membership(context))
        mounts = parse_mounts(_read(f"{context.proc}/self/mountinfo"))
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}.", "a kernel with control groups has it"
        ) from None
    location = locate(memberships, mounts, "memory")
    if location is None:
        raise Unavailable("No memory control group is mounted.", "mount cgroup2 on /sys/fs/cgroup")
    usage = "memory.usage_in_bytes" if location.version == 1 else "memory.current"
    own = context.own_cgroup is not None
    if context.own_cgroup is not None:
        # Also if the target has ended or left: a dead process is listed in the root group.
        location = location._replace(path=str(context.own_cgroup.path))
    chain = ancestors(location)
    readable = next((i for i, group in enumerate(chain) if os.access(f"{group}/{usage}", os.R_OK)), None)
    if readable is None:
        raise Unavailable(
            f"{location.path} has no memory accounting.",
            "the root group has none; a container, or systemd-run --scope, does",
        )
    if own and readable > 0:
        # The groups above hold other programs: 20 GiB were reported for a command of 1 MiB.
        raise Unavailable(f"The run's cgroup {chain[0]} is gone or unreadable.", "run the command again")
    chain = chain[readable:]
    return Groups(
        location.version,
        chain[0],
        tuple(chain),
        _with_file(locate(memberships, mounts, "cpu"), "cpu.stat"),
        _with_file(locate(memberships, mounts, None), "memory.pressure"),
        own,
    )


def _with_file(location: Location | None, name: str) -> str | None:
    """The nearest group, from the target's upwards, that has the file.

    The root of the whole version 2 hierarchy does not count: its figures are the machine's (it has no cgroup.type).
    """
    if location is None:
        return None
    for group in ancestors(location):
        if os.access(f"{group}/{name}", os.R_OK):
            return group if location.version == 1 or os.access(f"{group}/cgroup.type", os.R_OK) else None
    return None

"""Memory that the limits of our own cgroup leave.

At a limit the kernel kills a process of the cgroup, which may be ours or another one.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.control_group import (
    ancestors,
    own_location,
    parse_keyed,
    parse_limit,
)
from otel_memwatch.runtime.procfs.process import parse_status
from otel_memwatch.runtime.typed import NamedTuple

_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
"""Limit and usage, by version."""

_DROPPABLE = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file")}
"""Keys of memory.stat for bytes that the kernel drops before it kills. They exclude files that exist only in memory."""


def be_killed_first() -> None:
    """Make this process the first that the kernel kills if memory runs out.

    For processes that only render. Otherwise the kernel kills the largest, perhaps a service below the same limit.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as score:
        score.write("1000")


def be_spared() -> None:
    """Make the kernel kill another process if memory runs out; without effect unless we have CAP_SYS_RESOURCE.

    For a monitor below the target's limit. The kernel stops to count a dying process before all of its memory is free. If
    the monitor needs a page within these milliseconds, it is the only process left to kill, and the end is not recorded.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as score:
        score.write("-1000")


class MemoryHeadroom(NamedTuple):
    """Memory that the tightest limit leaves."""

    left: int
    """Bytes, page cache that can be dropped included; swap is not counted."""
    limit: int
    """Bytes."""


def memory_headroom(proc: str | os.PathLike[str] = "/proc") -> MemoryHeadroom | None:
    """Return the headroom below the limits of our cgroup and its visible ancestors.

    `None`: there is no limit, or none is readable.
    """
    try:
        location = own_location(proc)
    except OSError:
        return None
    if location is None:
        return None
    found = (_headroom_in(group, location.version) for group in ancestors(location))
    return min((one for one in found if one is not None), default=None)


def own_share(limit: int) -> int | None:
    """Return the bytes that this process takes of a limit; `None` if that is not our tightest limit."""
    ours = memory_headroom()
    if ours is None or ours.limit != limit:
        return None
    try:
        status = parse_status(read_once("/proc/self/status"))
    except (OSError, ValueError):
        return None
    return (status.anon or 0) + (status.shmem or 0)


def _headroom_in(group: str, version: int) -> MemoryHeadroom | None:
    limit_file, usage_file = _FILES[version]
    try:
        limit = parse_limit(read_once(f"{group}/{limit_file}"))
        if limit is None:
            return None
        usage = int(read_once(f"{group}/{usage_file}"))
        stat = parse_keyed(read_once(f"{group}/memory.stat"))
    except (OSError, ValueError):
        return None
    droppable = sum(stat.get(key, 0) for key in _DROPPABLE[version])
    return MemoryHeadroom(max(0, limit - usage + droppable), limit)

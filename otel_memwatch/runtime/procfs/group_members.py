"""Processes of a control group."""

from __future__ import annotations

import os

from otel_memwatch.runtime.procfs.process import parse_stat


def members(path: str) -> list[int]:
    """Return the PIDs in a group and the groups below it (10 us each); empty if it is gone.

    A process outside our PID namespace has no PID, and is omitted. So is the list of a group that has threads only.
    """
    pids, waiting = [], [path]
    while waiting:
        group = waiting.pop()
        try:
            with open(f"{group}/cgroup.procs", "rb") as file:
                pids += [pid for pid in map(int, file.read().split()) if pid]
        except OSError:
            pass
        waiting += groups_below(group)
    return pids


def groups_below(group: str) -> list[str]:
    """Return the groups directly below one: its directory has two links, and one for each of them."""
    try:
        if os.stat(group).st_nlink == 2:
            return []
        return [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def oldest_member(path: str, proc: str = "/proc") -> int | None:
    """Return the living process of a group that began first, its main process; `None`: none lives."""
    starts = []
    for pid in members(path):
        try:
            with open(f"{proc}/{pid}/stat", "rb") as file:
                stat = parse_stat(file.read())
        except (OSError, ValueError):
            continue
        if stat.state not in ("Z", "X"):
            starts.append((stat.start, pid))
    return min(starts)[1] if starts else None

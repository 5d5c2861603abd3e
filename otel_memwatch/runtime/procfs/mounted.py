"""Visibility of processes in the mounted /proc."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import read_once

_CAP_SYS_PTRACE = 19
_SHOWS_ALL = {"off", "0"}
_SHOWS_OWN = {"ptraceable", "4"}
"""Values of hidepid that give no additional rights to the group of gid=."""


def shows_others(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Return whether /proc belongs to another PID namespace (`unshare --pid` without `--mount-proc`).

    Its PIDs are then invalid, but /proc/self is still this process. Returns false without /proc.
    """
    try:
        return os.readlink(os.path.join(proc, "self")) != str(os.getpid())
    except OSError:
        return False


def hides_others(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Return whether /proc hides processes that this process may not trace (hidepid), including descendants.

    Hidden are processes of other users, setuid programs, and programs that are not dumpable. CAP_SYS_PTRACE sees all of
    them. Under hidepid=1 and 2, so does the group of gid= (default 0). Returns false if unknown. Cost: 50 us.
    """
    try:
        options: dict[str, str] = {}
        lines = os.fsdecode(read_once(f"{proc}/self/mountinfo")).splitlines()
        for line in lines:  # the file system mounted there last is the visible one
            mount, _, system = line.partition(" - ")
            if mount.split(" ")[4] == str(proc):
                words = system.split(" ")[-1].split(",")
                options = dict(word.split("=", 1) for word in words if "=" in word)
        value = options.get("hidepid", "off")
        if value in _SHOWS_ALL or may_trace_all(proc):
            return False
        group = int(options.get("gid", "0"))
    except (OSError, ValueError, IndexError):
        return False
    return value in _SHOWS_OWN or group not in {os.getegid(), *os.getgroups()}


def may_trace_all(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Return whether this process has the capability SYS_PTRACE."""
    with open(os.path.join(proc, "self/status"), "rb") as file:
        for line in file:
            if line.startswith(b"CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False

"""Whose processes the mounted /proc shows, and which of them not to us."""

from __future__ import annotations

import os
from pathlib import Path

_CAP_SYS_PTRACE = 19
_SHOWS_ALL = {"off", "0"}
_SHOWS_OWN = {"ptraceable", "4"}
"""Values of hidepid under which the group of gid= sees no more than others."""


def shows_others(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Whether it is that of another pid namespace (`unshare --pid` without `--mount-proc`), so that no pid is right in it.

    What stands below /proc/self is our own all the same. False where there is no /proc at all.
    """
    try:
        return os.readlink(os.path.join(proc, "self")) != str(os.getpid())
    except OSError:
        return False


def hides_others(proc: str | os.PathLike[str] = "/proc") -> bool:
    """Whether it is mounted so that processes which we may not trace are hidden from us (hidepid), descendants included.

    Those are the ones of other users, what a setuid program becomes, and programs that are not dumpable. CAP_SYS_PTRACE
    sees all, and under hidepid=1 and 2 so does the group of gid= (0 where none is named). False where it cannot be
    told. Cost: 50 us.
    """
    try:
        options = _options(str(proc))
        value = options.get("hidepid", "off")
        if value in _SHOWS_ALL or _may_trace_all(Path(proc)):
            return False
        group = int(options.get("gid", "0"))
    except (OSError, ValueError, IndexError):
        return False
    return value in _SHOWS_OWN or group not in {os.getegid(), *os.getgroups()}


def _options(proc: str) -> dict[str, str]:
    """The options of the file system that is mounted there last, which is the one that is seen."""
    found: dict[str, str] = {}
    for line in (
        Path(proc, "self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    ):
        mount, _, system = line.partition(" - ")
        if mount.split(" ")[4] == proc:
            words = system.split(" ")[-1].split(",")
            found = dict(word.split("=", 1) for word in words if "=" in word)
    return found


def _may_trace_all(proc: Path) -> bool:
    for line in (proc / "self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False

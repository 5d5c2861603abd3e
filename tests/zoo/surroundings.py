"""Where a composition runs: the groups of its referee, and who watches it from where, for either version of control groups."""

from __future__ import annotations

import functools
import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.control_group import Group, group

MIB = 1 << 20
LIMIT = 4096 * MIB
"""Of the group around a contained run."""
ROOT = Path("/sys/fs/cgroup")
LINUX = tuple(int(part) for part in os.uname().release.split(".")[:2])
VERSION = 2 if (ROOT / "cgroup.controllers").exists() else 1


def can_mark(*, inside: bool) -> bool:
    """Return whether a program can referee its operations: it resets the watermark of its referee, and of no group of the run."""
    return VERSION == 1 or (LINUX >= (6, 12) and not inside)


class Surroundings(NamedTuple):
    """Of one trial."""

    inside: bool
    """The referee is in the run's own group, or that group itself."""
    enter: str
    """The program's first word: how it enters its referee."""
    elsewhere: Group
    """A group that the program may leave its referee for."""
    before: list[str]
    """Words in front of the monitor's command line: its group, its user."""
    variables: dict[str, str]


def watcher(user: str) -> tuple[int, int]:
    """User and group number of the watching user: of version 2, of a user who has a session and a service manager."""
    if user == "root":
        return 0, 0
    if VERSION == 1:
        return 65534, 65534
    someone = pwd.getpwnam(os.environ.get("MEMWATCH_ZOO_USER", "tester"))
    return someone.pw_uid, someone.pw_gid


def _as(user: str, *, reads: bool) -> list[str]:
    """Return the words in front of a command of `user`; `reads`: it may read a Python in a home directory."""
    uid, gid = watcher(user)
    reading = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"] if reads else []
    return ["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", *reading] if uid else []


def _within(path: Path) -> list[str]:
    entrance = path / ("tasks" if VERSION == 1 else "cgroup.procs")
    return ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(entrance)]


def prepare() -> None:
    """Makes what all trials have in common, before the first of several threads needs it."""
    if VERSION == 2:
        delegated()
        _session(watcher("user")[0])


@contextmanager
def surroundings(mode: str, user: str, *, marked: bool = False) -> Iterator[Surroundings]:
    """Groups for one trial, removed at its end; `marked`: the program is this Python's, which its user must reach."""
    with _version_1(mode, user, reads=marked) if VERSION == 1 else _version_2(mode, user) as made:
        yield made


@contextmanager
def _version_1(mode: str, user: str, *, reads: bool) -> Iterator[Surroundings]:
    inside = mode == "group" and user == "root"
    with group(LIMIT) as around:
        parent = around.path if user == "contained" else None
        with group(parent=parent) as referee, group(parent=parent) as elsewhere:
            for one in (around, referee, elsewhere):
                for file in ("tasks", "memory.max_usage_in_bytes", "memory.kmem.max_usage_in_bytes"):
                    (one.path / file).chmod(0o666)
            before = [*(_within(around.path) if user == "contained" else []), *_as(user, reads=reads)]
            yield Surroundings(inside, "G" if inside else f"G{referee.path}", elsewhere, before, {})


@contextmanager
def _version_2(mode: str, user: str) -> Iterator[Surroundings]:
    """Root has a delegated service, a user a session with a service manager, the contained one a limited group of root's.

    A run without a group of the run's own starts in a group of `delegated`, from where the program can go to its
    referee: out of a session only root could move it.
    """
    uid, gid = watcher(user)
    inside = mode == "group" and user != "contained"
    top = delegated()
    own_place = _session(uid) if uid else top / "monitor"
    with group(LIMIT if user == "contained" else None, parent=top) as around:
        (around.path / "cgroup.subtree_control").write_text("+memory")
        with (
            group(parent=around.path) as monitor,
            group(parent=around.path) as referee,
            group(parent=around.path) as elsewhere,
        ):
            for one in (around, monitor, referee, elsewhere):
                for file in ("cgroup.procs", "memory.peak"):
                    os.chown(one.path / file, uid, gid)
            yield Surroundings(
                inside,
                "G" if inside else f"G{referee.path}",
                elsewhere,
                [*_within(own_place if inside else monitor.path), *_as(user, reads=False)],
                {"XDG_RUNTIME_DIR": f"/run/user/{uid}"} if uid else {},
            )


@functools.cache
def delegated() -> Path:
    """Our own group, which has been delegated to us, made to have groups with memory; we are in one below it then."""
    own = ROOT / Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
    leaf = own / "monitor"
    leaf.mkdir()
    for pid in (own / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(pid)
    (own / "cgroup.subtree_control").write_text("+memory")
    return own


@functools.cache
def _session(uid: int) -> Path:
    """Control group of a login session of a user, which stays open until we end."""
    name = pwd.getpwuid(uid).pw_name
    login = subprocess.Popen(
        ["su", "-l", name, "-c", "cat /proc/self/cgroup; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert login.stdout is not None
    _sessions.append(login)
    return ROOT / login.stdout.readline().strip().rpartition(":")[2].lstrip("/")


_sessions: list[subprocess.Popen[str]] = []
"""Each ends with its input, which ours is."""

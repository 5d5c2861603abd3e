"""The run's own control group, for real, where this machine has one that may be written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.monitor.run_cgroup import own_cgroup
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
from otel_memwatch.monitor.sampling.sources import Context, open_sources
from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from otel_memwatch.runtime.procfs.control_group import locate, parse_memberships, parse_mounts
from otel_memwatch.runtime.procfs.process import is_exiting
from tests.support.control_group import Group, memory_parent

PROGRAMS = Path(__file__).parents[3] / "programs/process_tree"
MIB = 1 << 20
GUARD = 60.0


@pytest.fixture
def own() -> Iterator[OwnCgroup]:
    memory_parent()
    made = OwnCgroup.create()
    assert made is not None
    yield made
    for _ in range(200):
        if not made.remove():
            break
        time.sleep(0.05)
    assert not os.path.exists(made.path)


def run(own: OwnCgroup, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        preexec_fn=own.add_self,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )


def test_peak_is_that_of_everything_in_the_group(own: OwnCgroup) -> None:
    done = run(own, str(PROGRAMS / "parent_and_child_hold_memory.py"))
    assert done.returncode == 0, done.stderr
    assert 150 * MIB <= own.peak() < 200 * MIB
    assert own.oom_kills() == 0


def page_faults(own: OwnCgroup) -> int:
    """Page faults that the cgroup has counted, which may be late."""
    stat = dict(line.split() for line in (Path(own.path) / "memory.stat").read_text().splitlines())
    return int(stat["total_pgfault" if own.version == 1 else "pgfault"])


def test_a_process_counts_its_page_faults_before_it_enters(own: OwnCgroup) -> None:
    """The cgroup counts all later ones, so one that is missing there was elsewhere."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"%d" % own.add_self())
        held = bytearray(4 * MIB)
        os._exit(held[-1])
    _, status, usage = os.wait4(child, 0)
    before = int(os.read(reader, 64))
    os.close(reader)
    os.close(writer)
    assert status == 0
    inside = usage.ru_minflt + usage.ru_majflt - before
    until = time.monotonic() + 2 * GROUP_LAG_SECONDS
    while page_faults(own) != inside and time.monotonic() < until:
        time.sleep(0.1)
    assert page_faults(own) == inside > 0


def test_it_knows_who_is_in_it(own: OwnCgroup) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        preexec_fn=own.add_self,  # noqa: PLW1509
    )
    try:
        assert own.holds(child.pid)
        assert not own.holds(os.getpid())
        assert own.first_threads() == {child.pid}
        assert own.remove() == (child.pid,)
        assert os.path.exists(own.path)
    finally:
        child.communicate(b"\n", timeout=GUARD)


@pytest.mark.parametrize("version", [1, 2])
def test_where_a_zombie_was(version: int) -> None:
    """The kernel keeps the group of a zombie on version 2 alone; on version 1 the zombie seems to be in the root group."""
    below = _somewhere(version) / f"memwatch-test-zombie-{os.getpid()}"
    below.mkdir()
    try:
        child = os.fork()
        if not child:
            (below / "cgroup.procs").write_text("0")
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        ended = Path(f"/proc/{child}/cgroup").read_text()
        exiting = is_exiting(Path(f"/proc/{child}/stat").read_bytes())
        os.waitpid(child, 0)
    finally:
        below.rmdir()
    assert (below.name in ended) is (version == 2)
    assert exiting


def _somewhere(version: int) -> Path:
    """Our own group in a hierarchy of the version, of whatever controller; skips where there is none to be written."""
    memberships = parse_memberships(Path("/proc/self/cgroup").read_bytes())
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_bytes())
    found = locate(memberships, mounts, "memory" if version == 1 else None)
    if found is None or found.version != version or not os.access(found.path, os.W_OK):
        pytest.skip(f"needs a control group of version {version} that may be written")
    return Path(found.path)


def test_source_reads_the_own_group(own: OwnCgroup) -> None:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "b = bytearray(50 << 20)\nprint(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=own.add_self,  # noqa: PLW1509
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        (source,), _ = open_sources(Context(child.pid, 0.1, own_cgroup=own), ["cgroup"])
        values = {
            (c.metric, c.attributes): v
            for c, v in zip(source.columns, source.read(time.monotonic()), strict=True)
        }
        usage, working = (values[f"memwatch.cgroup.memory.{name}", ()] for name in ("usage", "working_set"))
        assert isinstance(usage, int)
        assert isinstance(working, int)
        assert 50 * MIB <= working <= usage < 90 * MIB
        assert (
            values["memwatch.cgroup.memory.events", (("memwatch.cgroup.memory.event.type", "oom_kill"),)] == 0
        )
    finally:
        child.communicate(b"\n", timeout=GUARD)


def test_source_reads_the_own_group_after_the_target_has_ended(own: OwnCgroup) -> None:
    assert run(own, "-c", "b = bytearray(50 << 20)").returncode == 0
    (source,), missing = open_sources(Context(2**22 + 1, 0.1, adopt=True, own_cgroup=own), ["cgroup"])
    assert not missing
    values = dict(
        zip([column.metric for column in source.columns], source.read(time.monotonic()), strict=True)
    )
    assert int(values["memwatch.cgroup.memory.peak"] or 0) >= 50 * MIB


def test_limit_of_the_group_above_is_copied_and_kills_are_counted() -> None:
    """In a group of 96 MiB: a program of ours makes a separate group in it and starts what is too large."""
    group = Group(96 * MIB)
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "killed_in_own_group.py")],
            preexec_fn=group.enter,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        limit, code, kills, peak, left = done.stdout.split()
        assert int(limit) == 96 * MIB
        assert (int(code), int(kills), left) == (-9, 1, "()")
        assert 80 * MIB < int(peak) <= 96 * MIB
    finally:
        group.remove()


def test_groups_of_killed_monitors_are_swept(own: OwnCgroup) -> None:
    namespace = own_cgroup._namespace("self")
    dead = Path(own.path).parent / f"{own_cgroup.PREFIX}4194305-{namespace}-abc"
    living = Path(own.path).parent / f"{own_cgroup.PREFIX}{os.getpid()}-{namespace}-abc"
    for path in (dead, living):
        path.mkdir()
    try:
        another = OwnCgroup.create()
        assert another is not None
        another.remove()
        assert not dead.exists()
        assert living.exists()
    finally:
        for path in (dead, living):
            if path.exists():
                path.rmdir()


def test_a_swept_group_goes_with_those_below_it_unless_one_is_in_use(own: OwnCgroup) -> None:
    """A command may make groups, and a run inside a run does; a command may outlive its monitor."""
    namespace = own_cgroup._namespace("self")
    dead = Path(own.path).parent / f"{own_cgroup.PREFIX}4194305-{namespace}-abc"
    empty, used = dead / "empty", dead / f"{own_cgroup.PREFIX}4194306-{namespace}-abc"
    for path in (dead, empty, used):
        path.mkdir()
    command = subprocess.Popen(["sleep", "60"])
    try:
        (used / "cgroup.procs").write_text(str(command.pid))
        OwnCgroup.create().remove()
        assert empty.exists()
        command.kill()
        command.wait()
        OwnCgroup.create().remove()
        assert not dead.exists()
    finally:
        command.kill()
        command.wait()
        if dead.exists():
            own_cgroup._remove_tree(str(dead))


def test_processes_that_a_killed_monitor_left_frozen_go_on(tmp_path: Path) -> None:
    """Version 2 alone can freeze: files stand for the control group."""
    dead = tmp_path / f"{own_cgroup.PREFIX}4194305-{own_cgroup._namespace('self')}-abc"
    dead.mkdir()
    (dead / "cgroup.procs").write_text("1\n")
    (dead / "cgroup.freeze").write_text("1\n")
    own_cgroup.sweep(str(tmp_path))
    assert (dead / "cgroup.freeze").read_text().strip() == "0"

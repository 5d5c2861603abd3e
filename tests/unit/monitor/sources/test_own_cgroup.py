"""The run's own control group, for real where this machine has one that may be written, else on made-up directories."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sources import Context, open_sources, own_cgroup
from otel_memwatch.monitor.sources.own_cgroup import OwnCgroup
from tests.support.control_group import Group, memory_parent

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
    assert not made.path.exists()


def run(own: OwnCgroup, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        preexec_fn=own.add_self,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )


def test_peak_is_that_of_everything_in_the_group(own: OwnCgroup) -> None:
    done = run(
        own,
        "import os\nb = bytearray(60 << 20)\n"
        "if not os.fork():\n    c = bytearray(90 << 20); os._exit(0)\n"
        "os.wait()",
    )
    assert done.returncode == 0, done.stderr
    assert 150 * MIB <= own.peak() < 200 * MIB
    assert own.oom_kills() == 0


def test_it_knows_who_is_in_it(own: OwnCgroup) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        preexec_fn=own.add_self,  # noqa: PLW1509
    )
    try:
        assert own.holds(child.pid)
        assert not own.holds(os.getpid())
        assert own.remove() == (child.pid,)
        assert own.path.exists()
    finally:
        child.communicate(b"\n", timeout=GUARD)


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
    assert run(own, "b = bytearray(50 << 20)").returncode == 0
    (source,), missing = open_sources(Context(2**22 + 1, 0.1, adopt=True, own_cgroup=own), ["cgroup"])
    assert not missing
    values = dict(
        zip([column.metric for column in source.columns], source.read(time.monotonic()), strict=True)
    )
    assert int(values["memwatch.cgroup.memory.peak"] or 0) >= 50 * MIB


@pytest.mark.parametrize("end", ["left", "removed"])
def test_a_group_that_says_nothing_of_the_target_any_more_is_not_read(own: OwnCgroup, end: str) -> None:
    """That is no failure of the source: the target has left, or has ended and whoever owns the group has removed it."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        preexec_fn=own.add_self,  # noqa: PLW1509
    )
    try:
        (source,), _ = open_sources(Context(child.pid, 0.1, own_cgroup=own), ["cgroup"])
        assert source.read(time.monotonic())[0] is not None
        if end == "left":
            (own.path.parent / "cgroup.procs").write_text(str(child.pid))
        else:
            child.communicate(b"\n", timeout=GUARD)
            own.path.rmdir()
        assert set(source.read(time.monotonic())) == {None}
        assert set(source.read(time.monotonic())) == {None}
    finally:
        if child.poll() is None:
            child.communicate(b"\n", timeout=GUARD)
        if end == "removed":
            own.path.mkdir(exist_ok=True)


def test_a_group_that_a_descendant_has_left_is_not_the_tree_s(own: OwnCgroup) -> None:
    """As by `systemd-run --scope` in a script: what it needs from then on is counted elsewhere."""
    child = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; read x; kill $!"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=own.add_self,  # noqa: PLW1509
    )
    try:
        assert child.stdout is not None
        sleeper = child.stdout.readline().decode().strip()
        sources, _ = open_sources(Context(child.pid, 0.1, own_cgroup=own), ["process_tree", "cgroup"])
        tree, group = sources

        def read(after: float) -> object:
            now = time.monotonic() + after
            tree.read(now)
            return group.read(now)[0]

        assert read(0) is not None
        assert read(2) is not None
        (own.path.parent / "cgroup.procs").write_text(sleeper)
        assert read(4) is None
        assert read(4.1) is None
    finally:
        child.communicate(b"\n", timeout=GUARD)


def test_a_target_in_a_group_below_the_own_one_has_not_left(own: OwnCgroup) -> None:
    below = own.path / "part"
    below.mkdir()
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (below / "cgroup.procs").write_text(str(child.pid))
        assert own.holds(child.pid)
    finally:
        child.communicate(b"\n", timeout=GUARD)
        below.rmdir()


def test_limit_of_the_group_above_is_copied_and_kills_are_counted() -> None:
    """In a group of 96 MiB: a program of ours makes its own group in it and starts what is too large."""
    group = Group(96 * MIB)
    program = (
        "import os,sys\n"
        "from otel_memwatch.monitor.sources.own_cgroup import OwnCgroup\n"
        "own = OwnCgroup.create()\n"
        "limit = own.limit()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    own.add_self()\n"
        "    os.execv(sys.executable, [sys.executable, '-S', '-c', 'b = bytearray(200 << 20)'])\n"
        "status = os.waitpid(pid, 0)[1]\n"
        "print(limit, os.waitstatus_to_exitcode(status), own.oom_kills(), own.peak(), own.remove())\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
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
    dead = own.path.parent / f"{own_cgroup.PREFIX}4194305-{namespace}-abc"
    gone = own.path.parent / f"{own_cgroup.PREFIX}1-1-abc"
    living = own.path.parent / f"{own_cgroup.PREFIX}{os.getpid()}-{namespace}-abc"
    for path in (dead, gone, living):
        path.mkdir()
    try:
        another = OwnCgroup.create()
        assert another is not None
        another.remove()
        assert not dead.exists()
        assert not gone.exists()
        assert living.exists()
    finally:
        for path in (dead, gone, living):
            if path.exists():
                path.rmdir()


class Fake:
    """A machine of ordinary files: /proc/self/cgroup, /proc/self/mountinfo and a hierarchy."""

    def __init__(
        self, folder: Path, *, version: int, group: str, mount: str = "rw", controllers: str = "memory"
    ) -> None:
        self.root = folder / "cgroup"
        self.proc = folder / "proc"
        self.group = self.root / group.strip("/")
        self.group.mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        kind = "cgroup rw,memory" if version == 1 else "cgroup2 rw"
        (self.proc / "self/mountinfo").write_text(
            f"30 23 0:26 / {self.root} {mount} - {kind.split(maxsplit=1)[0]} x {kind.split()[1]}\n"
        )
        (self.proc / "self/cgroup").write_text(f"4:memory:{group}\n" if version == 1 else f"0::{group}\n")
        self.files(self.group, {"cgroup.procs": f"{os.getpid()}\n", "cgroup.controllers": controllers})

    def files(self, group: Path, contents: dict[str, str]) -> None:
        group.mkdir(exist_ok=True)
        for name, text in contents.items():
            (group / name).write_text(text)

    def delegate(self, monkeypatch: pytest.MonkeyPatch, group: Path) -> None:
        real = os.getxattr

        def getxattr(path: str, name: str) -> bytes:
            if Path(path) == group and name == "user.delegate":
                return b"1"
            return real(path, name)

        monkeypatch.setattr(os, "getxattr", getxattr)


def why(fake: Fake) -> str:
    with pytest.raises(Unavailable) as caught:
        OwnCgroup.create(proc=fake.proc)
    return str(caught.value)


def test_read_only_mount(tmp_path: Path) -> None:
    assert "read-only" in why(Fake(tmp_path, version=2, group="/", mount="ro"))


def test_what_systemd_owns_is_left_alone(tmp_path: Path) -> None:
    fake = Fake(tmp_path, version=1, group="/user.slice/session-1.scope")
    fake.files(fake.group, {"memory.use_hierarchy": "1"})
    assert "systemd" in why(fake)
    assert "delegated" in why(Fake(tmp_path / "2", version=2, group="/user.slice/session-1.scope"))


def test_other_processes_are_never_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(tmp_path, version=2, group="/job.scope")
    fake.files(fake.group, {"cgroup.subtree_control": "", "cgroup.procs": f"{os.getpid()}\n1\n"})
    fake.files(fake.root, {"cgroup.subtree_control": ""})
    fake.delegate(monkeypatch, fake.group)
    assert "holds other processes" in why(fake)
    assert (fake.group / "cgroup.subtree_control").read_text() == ""
    assert not list(fake.group.glob("memwatch-*"))


def test_missing_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(tmp_path, version=2, group="/job.scope", controllers="cpu pids")
    fake.files(fake.group, {"cgroup.subtree_control": ""})
    fake.delegate(monkeypatch, fake.group)
    assert "no memory controller" in why(fake)


def test_nothing_is_counted_upwards_in_a_flat_hierarchy(tmp_path: Path) -> None:
    fake = Fake(tmp_path, version=1, group="/jobs/7")
    fake.files(fake.group, {"memory.use_hierarchy": "0"})
    assert "use_hierarchy" in why(fake)


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("")
    (tmp_path / "self/mountinfo").write_text("")
    with pytest.raises(Unavailable, match="mounted"):
        OwnCgroup.create(proc=tmp_path)


def test_sibling_group_where_the_group_above_was_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group above distributes memory already: ours is made beside that of the monitor, which stays where it is."""
    fake = Fake(tmp_path, version=2, group="/job.scope/leaf")
    above = fake.group.parent
    fake.files(fake.group, {"cgroup.subtree_control": ""})
    fake.files(above, {"cgroup.subtree_control": "memory", "cgroup.procs": "", "memory.max": "104857600"})
    fake.delegate(monkeypatch, above)
    made: list[Path] = []
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        # the kernel fills a new group with files
        real(path, mode)
        made.append(Path(path))
        fake.files(
            Path(path),
            {
                "cgroup.procs": "",
                "memory.peak": "5\n",
                "memory.max": "max\n",
                "memory.events": "oom_kill 2\n",
            },
        )

    monkeypatch.setattr(os, "mkdir", mkdir)
    own = OwnCgroup.create(proc=fake.proc)
    assert [path.parent for path in made] == [above]
    assert (own.version, own.peak(), own.oom_kills(), own.limit()) == (2, 5, 2, 104857600)
    assert (fake.group / "cgroup.procs").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("job.service", {}),
        ("memwatch-7-4026531836-abc", {}),
        ("job.scope", {"memory.max": "104857600"}),
        ("job.scope", {"memory.high": "104857600"}),
        ("job.scope", {"cpu.max": "50000 100000"}),
        ("job.scope", {"cpu.weight": "20"}),
        ("job.scope", {"cpuset.cpus": "0"}),
    ],
)
def test_a_group_that_counts_or_limits_us_is_not_left_for_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str]
) -> None:
    """A service of a user, the group of the run around this one, a limit: what is delegated above is no way out."""
    fake = Fake(tmp_path, version=2, group=f"/app.slice/{name}")
    above = fake.group.parent
    fake.files(fake.group, {"cgroup.subtree_control": "", "cgroup.procs": f"{os.getpid()}\n1\n", **files})
    fake.files(above, {"cgroup.subtree_control": "memory", "cgroup.procs": ""})
    fake.delegate(monkeypatch, above)
    assert "holds other processes" in why(fake)
    assert [path.name for path in above.iterdir() if path.is_dir()] == [name]

"""The run's own control group, on made-up directories."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup import own_cgroup
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

MIB = 1 << 20


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


@pytest.mark.parametrize(
    ("unit", "controllers"), [("job.scope", "memory"), ("job.scope", ""), ("user.service/job.service", "")]
)
def test_sibling_group_where_the_group_above_was_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, controllers: str
) -> None:
    """Ours is made beside that of the monitor, which stays where it is, and so does a harness beside the monitor.

    The group above counts the memory of its children already, or holds no processes and can do so.
    """
    fake = Fake(tmp_path, version=2, group=f"/{unit}/leaf")
    above = fake.group.parent
    fake.files(fake.group, {"cgroup.subtree_control": "", "cgroup.procs": f"{os.getpid()}\n1\n"})
    fake.files(above, {"cgroup.subtree_control": controllers, "cgroup.procs": "", "memory.max": "104857600"})
    fake.delegate(
        monkeypatch, fake.root / unit.partition("/")[0]
    )  # the user's manager marks none of its units
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
    assert (fake.group / "cgroup.procs").read_text() == f"{os.getpid()}\n1\n"
    assert "memory" in (above / "cgroup.subtree_control").read_text()


@pytest.mark.parametrize("reason", ["holds a process", "has a service manager", "is a slice"])
def test_a_group_above_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    fake = Fake(tmp_path, version=2, group=f"/job.{'slice' if reason == 'is a slice' else 'service'}/leaf")
    above = fake.group.parent
    fake.files(fake.group, {"cgroup.subtree_control": "", "cgroup.procs": f"{os.getpid()}\n1\n"})
    fake.files(
        above, {"cgroup.subtree_control": "", "cgroup.procs": "7\n" if reason == "holds a process" else ""}
    )
    if reason == "has a service manager":
        (above / "init.scope").mkdir()
    fake.delegate(monkeypatch, above)
    assert "holds other processes" in why(fake)
    assert (above / "cgroup.subtree_control").read_text() == ""


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


def group_of(folder: Path, version: int, limit: str) -> OwnCgroup:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    peak, events = (
        ("memory.max_usage_in_bytes", "memory.oom_control")
        if version == 1
        else ("memory.peak", "memory.events")
    )
    for file in (
        "tasks",
        "cgroup.procs",
        "memory.swappiness",
        "memory.memsw.limit_in_bytes",
        "memory.swap.max",
        peak,
        events,
    ):
        (folder / file).write_text("0\n")
    (folder / name).write_text(f"{limit}\n")
    return OwnCgroup(str(folder), version)


def test_packets_are_counted_from_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 charges them to the cgroup."""
    monkeypatch.setattr(
        "otel_memwatch.monitor.run_cgroup.own_cgroup.packets", lambda: (b"00000007", b"00000000")
    )
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    assert group_of(tmp_path / "1", 1, "0").packets is None
    assert group_of(tmp_path / "2", 2, "0").packets == (b"00000007", b"00000000")


@pytest.mark.parametrize(
    ("version", "limit", "files"),
    [
        (1, str((1 << 63) - 4096), {"memory.limit_in_bytes": 100 * MIB, "memory.memsw.limit_in_bytes": 101 * MIB,
                                    "memory.swappiness": 0}),
        (2, "max", {"memory.max": 100 * MIB, "memory.swap.max": 0}),
        (1, str(60 * MIB), {"memory.limit_in_bytes": 60 * MIB}),
        (2, str(60 * MIB), {"memory.max": 60 * MIB, "memory.swap.max": 0}),
    ],
)  # fmt: skip
def test_a_hard_limit_leaves_no_swap_and_lifts_no_smaller_one(
    tmp_path: Path, version: int, limit: str, files: dict[str, int]
) -> None:
    group_of(tmp_path, version, limit).set_limit(100 * MIB)
    assert files
    for name, value in files.items():
        assert int((tmp_path / name).read_text()[: len(str(value))]) == value


@pytest.mark.parametrize(
    ("version", "files", "kills"),
    [
        (1, {"memory.oom_control": "oom_kill 2", "memory.failcnt": "0"}, 0),
        (1, {"memory.oom_control": "oom_kill 2", "memory.failcnt": "3"}, 2),
        (1, {"memory.oom_control": "oom_kill 0", "memory.failcnt": "7"}, 0),
        (2, {"memory.events": "max 9\noom 0\noom_kill 2\n"}, 0),
        (2, {"memory.events": "max 9\noom 1\noom_kill 2\n"}, 2),
    ],
)
def test_kills_at_an_enclosing_limit_do_not_count(
    tmp_path: Path, version: int, files: dict[str, str], kills: int
) -> None:
    group = group_of(tmp_path, version, str(1 << 30))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert group.kills_at_limit() == kills


def test_a_limit_that_the_kernel_refuses_is_a_sentence(tmp_path: Path) -> None:
    group = group_of(tmp_path, 2, "max")
    (tmp_path / "memory.max").unlink()
    with pytest.raises(Unavailable, match="takes no limit"):
        group.set_limit(100 * MIB)


@pytest.mark.parametrize(
    ("runs", "hint"), [(True, "systemd-run --user"), (False, "run as root, or in a cgroup")]
)
def test_what_would_help_is_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool, hint: str
) -> None:
    monkeypatch.setattr(own_cgroup, "systemd_runs", lambda: runs)
    with pytest.raises(Unavailable) as why:
        OwnCgroup.create(tmp_path)
    assert why.value.hint is not None
    assert why.value.hint.startswith(hint)


def test_a_user_without_the_right_is_named_without_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> OwnCgroup:
        raise PermissionError(errno.EACCES, "Permission denied", "/sys/fs/cgroup/memory/a/memwatch-1")

    monkeypatch.setattr(own_cgroup, "_make", refuse)
    with pytest.raises(Unavailable) as why:
        OwnCgroup.create()
    assert why.value.message == "This user may not create cgroups."


@pytest.mark.parametrize(("refusals", "left"), [(2, False), (10_000, True)])
def test_a_cgroup_is_removed_once_its_last_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, *, left: bool
) -> None:
    """A process that is ending keeps the cgroup for a moment, and cgroup.procs no longer lists it."""
    path = tmp_path / "memwatch-1"
    path.mkdir()
    group = OwnCgroup.__new__(OwnCgroup)
    for name, value in {
        "entrance": -1,
        "_peak": -1,
        "_given": False,
        "path": str(path),
        "_leaf": None,
    }.items():
        setattr(group, name, value)
    attempts = itertools.count()
    remove = os.rmdir

    def refuse(directory: str) -> None:
        if next(attempts) < refusals:
            raise OSError(errno.EBUSY, "Device or resource busy", directory)
        remove(directory)

    monkeypatch.setattr(own_cgroup.os, "rmdir", refuse)
    monkeypatch.setattr(own_cgroup, "_DYING_SECONDS", 0.1)
    monkeypatch.setattr(OwnCgroup, "pids", lambda _: [])
    assert group.remove() == ()
    assert path.exists() is left


INITIAL = own_cgroup._INITIAL_NAMESPACE


@pytest.mark.parametrize(
    ("ours", "others", "maker", "lives"),
    [
        (INITIAL, {}, (os.getpid(), INITIAL), True),
        (INITIAL, {}, (4194305, INITIAL), False),
        (INITIAL, {"5": "77"}, (4194305, "77"), True),  # a process of the maker's container lives
        (INITIAL, {"5": "78"}, (4194305, "77"), False),
        (INITIAL, {"5": ""}, (4194305, "77"), True),  # unreadable
        (INITIAL, {"1": ""}, (4194305, "77"), False),
        ("77", {"5": "77"}, (4194305, INITIAL), True),  # outside of our container: not visible
        ("77", {"5": "77"}, (4194305, "78"), True),
        ("", {}, (4194305, ""), True),
    ],
)
def test_monitors_that_may_live(
    monkeypatch: pytest.MonkeyPatch, ours: str, others: dict[str, str], maker: tuple[int, str], lives: bool
) -> None:
    processes = {"self": ours, "2": ours, **others}
    monkeypatch.setattr(own_cgroup, "_namespace", processes.__getitem__)
    monkeypatch.setattr(os, "listdir", lambda _: list(processes))
    assert own_cgroup._lives(str(maker[0]), maker[1]) == lives

"""The control group source on made-up hierarchies of both versions."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup.last_reading import FILES
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.cgroup import Cgroup, open_source
from otel_memwatch.monitor.sampling.sources.cgroup.location import find
from otel_memwatch.monitor.sampling.sources.cgroup.readings import readings
from tests.support.proc_tree import KnownPids

UNLIMITED = 9223372036854771712
ROOT_PID = 50
CAPTURED = Path(__file__).parents[4] / "data" / "proc" / "memory.stat-v1"


def machine(folder: Path, groups: str, *mounts: str) -> Context:
    for pid in ("self", str(ROOT_PID)):
        (folder / "proc" / pid).mkdir(parents=True)
        (folder / "proc" / pid / "cgroup").write_text(groups)
        (folder / "proc" / pid / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    return Context(ROOT_PID, 0.1, proc=folder / "proc", sys=folder / "sys")


def group(path: Path, **files: object) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(f"{text}\n")


def values(source: Cgroup, now: float = 1.0) -> dict[str, object]:
    read = source.read(now)
    return {
        " ".join(
            [column.metric.removeprefix("memwatch.cgroup."), *(value for _, value in column.attributes)]
        ): value
        for column, value in zip(source.columns, read, strict=True)
    }


def version1(folder: Path) -> Context:
    memory = folder / "memory"
    for path, limit in ((memory, UNLIMITED), (memory / "jobs", 500), (memory / "jobs/7", UNLIMITED)):
        group(path, memory__limit_in_bytes=limit, memory__usage_in_bytes=300)
    stat = "cache 1\ntotal_cache 100\ntotal_rss 150\ntotal_shmem 20\ntotal_inactive_file 60\ntotal_swap 5"
    group(
        memory / "jobs/7",
        memory__max_usage_in_bytes=400,
        memory__kmem__usage_in_bytes=7,
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3",
        memory__failcnt=11,
        memory__stat=stat,
    )
    group(folder / "cpu/jobs/7", cpu__stat="nr_periods 4\nnr_throttled 2\nthrottled_time 2500000000")
    return machine(
        folder,
        "5:cpu,cpuacct:/jobs/7\n4:memory:/jobs/7\n0::/\n",
        f"30 23 0:26 / {memory} rw - cgroup cgroup rw,memory",
        f"31 23 0:27 / {folder / 'cpu'} rw - cgroup cgroup rw,cpu,cpuacct",
    )


def test_version_1(tmp_path: Path) -> None:
    read = values(open_source(version1(tmp_path)))
    assert read["memory.usage"] == 300
    assert read["memory.peak"] == 400
    assert read["memory.events oom_kill"] == 3
    assert read["memory.events max"] == 11
    assert read["memory.working_set"] == 240
    assert (read["memory.anon"], read["memory.file"], read["memory.shmem"]) == (150, 80, 20)
    assert (read["memory.kernel"], read["memory.swap"]) == (7, 5)
    assert read["memory.limit max"] == 500
    assert read["memory.limit high"] is None
    assert read["cpu.throttled"] == 2.5
    assert not [name for name in read if name.startswith("pressure")]


@pytest.mark.parametrize(
    ("state", "flags", "where"), [("S", 0, "other"), ("Z", 0, "jobs/7"), ("R", 4, "jobs/7")]
)
def test_a_target_that_ends_meanwhile_was_in_our_cgroup(
    tmp_path: Path, state: str, flags: int, where: str
) -> None:
    """From its exit on, the kernel lists it in the root group: the machine's memory was reported as the process's."""
    context = version1(tmp_path)
    group(tmp_path / "memory/other", memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=4096)
    target = tmp_path / "proc" / str(ROOT_PID)
    (target / "cgroup").write_text("4:memory:/other\n0::/\n")
    fields = [state, 1, 1, 1, 0, -1, flags, *[0] * 45]
    (target / "stat").write_text(f"{ROOT_PID} (job) {' '.join(map(str, fields))}\n")
    assert find(context._replace(adopt=True)).memory == str(tmp_path / "memory" / where)


def test_page_cache_that_waits_to_be_written_or_is_mapped_on_version_1(tmp_path: Path) -> None:
    context = version1(tmp_path)
    stat = tmp_path / "memory/jobs/7/memory.stat"
    stat.write_text(
        f"{stat.read_text()}\ndirty 1\ntotal_dirty 8\ntotal_writeback 4\nmapped_file 1\n"
        "total_mapped_file 90\ntotal_shmem 20\n"
    )
    assert readings(find(context)).statistics()[-2:] == (12, 70)


def test_refaults_and_cpu_limits_of_version_1(tmp_path: Path) -> None:
    context = version1(tmp_path)
    stat = tmp_path / "memory/jobs/7/memory.stat"
    stat.write_text(stat.read_text() + "\nworkingset_refault_file 3\ntotal_workingset_refault_file 40\n")
    # With equal limits of memory and of memory with swap, the kernel counts only failures of the latter.
    (tmp_path / "memory/jobs/7/memory.memsw.failcnt").write_text("9")
    for path, quota in (("cpu", -1), ("cpu/jobs", 150000), ("cpu/jobs/7", 200000)):
        group(tmp_path / path, cgroup__procs="", cpu__cfs_quota_us=quota, cpu__cfs_period_us=100000)
    read = values(open_source(context))
    assert (read["paging.refaults"], read["cpu.limit"], read["memory.events max"]) == (40, 1.5, 20)


def test_limit_that_the_kernel_knows_of_groups_that_cannot_be_seen(tmp_path: Path) -> None:
    context = version1(tmp_path)
    stat = tmp_path / "memory/jobs/7/memory.stat"
    stat.write_text(stat.read_text() + "hierarchical_memory_limit 450\n")
    assert values(open_source(context))["memory.limit max"] == 450


def test_captured_statistics_of_version_1(tmp_path: Path) -> None:
    context = version1(tmp_path)
    (tmp_path / "memory/jobs/7/memory.stat").write_bytes(CAPTURED.read_bytes())
    (tmp_path / "memory/jobs/7/memory.usage_in_bytes").write_text(str(1 << 30))
    read = values(open_source(context))
    assert (read["memory.file"], read["memory.anon"]) == (18071552, 2543616)
    assert 0 < int(str(read["memory.working_set"])) < 1 << 30


def version2(folder: Path, *, mount: str = "rw", **files: object) -> Context:
    root = folder / "cgroup"
    group(root, cgroup__controllers="memory")
    group(root / "a", memory__current=900, memory__max=2000, memory__high=1500, cgroup__type="domain")
    known: dict[str, object] = {
        "memory__current": 800,
        "memory__max": "max",
        "memory__high": "max",
        "memory__peak": 850,
        "memory__events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6",
        "memory__stat": "anon 500\nfile 200\nshmem 30\nkernel 90\ninactive_file 120",
        "memory__swap__current": 4,
        "cgroup__type": "domain",
        "cpu__stat": "usage_usec 9\nthrottled_usec 1500000",
        "cpu__pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000",
        "memory__pressure": "some avg10=0.0 total=3000000\nfull avg10=0.0 total=2000000",
        "io__pressure": "",
    }
    group(root / "a/b", **{name: text for name, text in (known | files).items() if text is not None})
    return machine(folder, "0::/a/b\n", f"30 23 0:26 / {root} {mount} - cgroup2 cgroup2 rw")


@pytest.mark.parametrize("mount", ["rw", "ro"])
def test_version_2(tmp_path: Path, mount: str) -> None:
    read = values(open_source(version2(tmp_path, mount=mount)))
    assert (read["memory.usage"], read["memory.peak"], read["memory.working_set"]) == (800, 850, 680)
    assert (read["memory.anon"], read["memory.file"], read["memory.shmem"]) == (500, 170, 30)
    assert (read["memory.kernel"], read["memory.swap"]) == (90, 4)
    assert (read["memory.limit max"], read["memory.limit high"]) == (2000, 1500)
    assert [read[f"memory.events {name}"] for name in ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")] == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip
    assert read["cpu.throttled"] == 1.5
    assert (read["pressure.time cpu some"], read["pressure.time memory full"]) == (1.0, 2.0)
    assert read["pressure.time cpu full"] is None
    assert read["pressure.time io some"] is None


def test_refaults_and_cpu_limits_of_version_2(tmp_path: Path) -> None:
    stat = "anon 500\nfile 200\nshmem 30\nworkingset_refault_file 40"
    context = version2(tmp_path, memory__stat=stat, cgroup__procs="", cpu__max="max 100000")
    group(tmp_path / "cgroup/a", cgroup__procs="", cpu__max="50000 100000")
    read = values(open_source(context))
    assert (read["paging.refaults"], read["cpu.limit"]) == (40, 0.5)


def test_old_version_2_has_no_watermark_and_kernel_memory_in_parts(tmp_path: Path) -> None:
    stat = "anon 500\nfile 200\nshmem 30\nkernel_stack 1\nslab 20\ninactive_file 120"
    read = values(
        open_source(version2(tmp_path, memory__peak=None, memory__stat=stat, memory__swap__current=None))
    )
    assert (read["memory.peak"], read["memory.kernel"], read["memory.swap"]) == (None, 21, None)


def test_group_without_the_memory_controller_is_read_where_it_is_accounted(tmp_path: Path) -> None:
    context = version2(tmp_path, memory__current=None)
    group(tmp_path / "cgroup/a", memory__stat="anon 1")
    assert values(open_source(context))["memory.usage"] == 900


def test_root_group_of_version_2_is_not_accounted(tmp_path: Path) -> None:
    group(tmp_path / "cgroup", cgroup__controllers="memory")
    context = machine(tmp_path, "0::/\n", f"30 23 0:26 / {tmp_path / 'cgroup'} rw - cgroup2 cgroup2 rw")
    with pytest.raises(Unavailable, match="accounting"):
        open_source(context)


def test_slow_values_are_read_about_once_a_second(tmp_path: Path) -> None:
    source = open_source(version2(tmp_path))
    due = [values(source, tenth / 10)["memory.anon"] for tenth in range(31)]
    assert [place for place, value in enumerate(due) if value is not None] == [0, 10, 20, 30]


def test_group_that_is_removed_fails_to_read(tmp_path: Path) -> None:
    context = version2(tmp_path)
    source = open_source(context)
    (tmp_path / "cgroup/a/b/memory.current").unlink()
    with pytest.raises(OSError, match=r"memory\.current"):
        source.read(1.0)


@pytest.mark.parametrize(
    ("ours", "adopt", "outside"),
    [
        ("/jobs/7", True, 0),
        # what the command had here, and started, before it moved, is not in the group that it is in now
        ("/jobs", True, 1),
        ("/", True, 1),
        # it is unknown where a process was that was there before
        ("/", False, 0),
    ],
)
def test_a_command_that_has_moved_already_was_outside(
    tmp_path: Path, ours: str, adopt: bool, outside: int
) -> None:
    context = version1(tmp_path)._replace(adopt=adopt)
    (tmp_path / "proc/self/cgroup").write_text(f"4:memory:{ours}\n0::/\n")
    for pid in ("self", str(ROOT_PID)):
        stat = Path("/proc/self/stat").read_text()
        (tmp_path / "proc" / pid / "stat").write_text(stat)
    assert values(open_source(context))["outside"] == outside


def test_a_command_that_moves_between_two_slow_looks_is_outside(tmp_path: Path) -> None:
    """A tick may see it before it moves, and none after a second."""
    context = version1(tmp_path)
    (tmp_path / "proc" / str(ROOT_PID) / "stat").write_text(Path("/proc/self/stat").read_text())
    source = open_source(context)
    assert values(source, 0.0)["outside"] == 0
    (tmp_path / "proc" / str(ROOT_PID) / "cgroup").write_text("4:memory:/jobs\n")
    assert values(source, 0.1)["outside"] == 1


class Ended(NamedTuple):
    """A tree of which nothing is left but where its processes ended."""

    groups: dict[int, bytes]
    resting: bool = False
    sleeps: bool = False

    def pids(self) -> tuple[int, ...]:
        return ()

    def ended_in(self) -> dict[int, bytes]:
        return self.groups


@pytest.mark.parametrize(
    ("group", "outside"), [("/a/b", 0), ("/a/b/c", 0), ("/a", 1), ("/a/bc", 1), ("/x (deleted)", 1)]
)
def test_a_command_that_ended_elsewhere_was_outside(tmp_path: Path, group: str, outside: int) -> None:
    """It may have moved after the last tick that saw it."""
    tree = Ended({ROOT_PID: f"0::{group}\n".encode()})
    context = version2(tmp_path)._replace(tree=cast("Any", tree))
    assert values(open_source(context))["outside"] == outside


def test_an_unreadable_cgroup_of_the_run_is_not_replaced_by_the_groups_above_it(tmp_path: Path) -> None:
    context = version2(tmp_path)
    own = SimpleNamespace(path=f"{tmp_path}/cgroup/a/removed")
    with pytest.raises(Unavailable, match="removed is gone or unreadable"):
        open_source(context._replace(own_cgroup=cast("Any", own)))


@pytest.mark.parametrize(
    ("slab", "file", "locked"),
    [
        ("", 170, 5),
        # dentries and inodes that a search left: page cache
        ("slab_reclaimable 4000\nslab_unreclaimable 100", 4170, 55),
        # dentries of files in /dev/shm stay
        ("slab_reclaimable 4000\nslab_unreclaimable 16000", 4170, 4005),
    ],
)
def test_reclaimable_slab_counts_as_page_cache(tmp_path: Path, slab: str, file: int, locked: int) -> None:
    stat = f"anon 500\nfile 200\nshmem 30\nunevictable 5\npgfault 7\nfile_dirty 8\nfile_writeback 4\nfile_mapped 90\n{slab}"
    context = version2(tmp_path, memory__stat=stat)
    found = readings(find(context)).statistics()
    assert found == (file, 7, locked, 500, None, 12, 60)


@pytest.mark.parametrize(
    ("names", "missed"),
    [
        ({"max_usage_in_bytes": 400}, True),
        ({"max_usage_in_bytes": 400, "memsw__max_usage_in_bytes": 400}, False),
        ({"max_usage_in_bytes": 400, "memsw__max_usage_in_bytes": 4 << 40}, True),
    ],
)
def test_a_late_reset_misses_nothing_above_the_peak_of_the_whole_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, int], missed: bool
) -> None:
    context = version1(tmp_path)
    group(tmp_path / "memory/jobs/7", **{f"memory__{name}": value for name, value in names.items()})
    monkeypatch.setattr(time, "monotonic", iter((1.0, 1.058)).__next__)
    assert readings(find(context)).window() == (400, 0.058 if missed else 0)


def test_a_process_with_the_pid_of_an_ended_one_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors stay open from one sample to the next: that of an ended process raises, and its pid may be reused."""
    source = open_source(version1(tmp_path))
    (tmp_path / "proc" / str(ROOT_PID) / "stat").write_text(Path("/proc/self/stat").read_text())
    for now in (0.0, 0.1, 0.2):
        assert values(source, now)["outside"] == 0
    outside = source._outside
    assert outside is not None
    (descriptor,) = outside._files.values()
    pread = os.pread

    def gone(fd: int, size: int, offset: int) -> bytes:
        if fd == descriptor:
            raise ProcessLookupError
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", gone)
    (tmp_path / "proc" / str(ROOT_PID) / "cgroup").write_text("4:memory:/jobs\n")
    assert values(source, 0.3)["outside"] == 1
    source.close()
    assert not outside._files


@pytest.mark.parametrize("listed", [20, 1000])
def test_many_processes_are_found_in_the_list_of_their_cgroup(tmp_path: Path, listed: int) -> None:
    context = version1(tmp_path)
    pids = range(100, 130)
    (tmp_path / "memory/jobs/7/tasks").write_text("".join(f"{pid}\n" for pid in range(100, 100 + listed)))
    for pid in pids:
        (tmp_path / "proc" / str(pid)).mkdir()
        inside = pid >= 120 if listed == 20 else pid != 125
        path = "/jobs/7" if inside and pid != 125 else "/jobs"
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(f"4:memory:{path}\n")
        (tmp_path / "proc" / str(pid) / "stat").write_text(Path("/proc/self/stat").read_text())
    source = open_source(context._replace(tree=KnownPids(pids)))
    assert values(source, 0.0)["outside"] == (1 if listed == 20 else 0)
    assert values(source, 1.1)["outside"] == 1, "a long list is read once"


def test_a_cgroup_without_new_charges_is_read_further_only_if_the_tree_changes(tmp_path: Path) -> None:
    """Neither memory nor page cache came, and the kernel's watermark is the usage since the last reset."""
    context = version2(tmp_path)
    group_path = tmp_path / "cgroup/a/b"
    own = SimpleNamespace(path=str(group_path))
    for resting, anon in ((True, 500), (False, 600)):
        tree = Ended({}, resting=resting)
        source = open_source(context._replace(own_cgroup=cast("Any", own), tree=cast("Any", tree)))
        assert values(source, 1.0)["memory.anon"] == 500
        (group_path / "memory.peak").write_text("800\n")  # as the kernel does at a reset
        (group_path / "memory.stat").write_text("anon 600\nfile 200\nshmem 30")
        now = values(source, 1.1)
        assert now["memory.anon"] == anon
        assert (now["memory.usage"], now["memory.window"], now["memory.window.gap"]) == (800, 800, 0)
        repetition = source.repeats()
        assert repetition is not None
        assert [file.parts for file in repetition.files] == [(b"800\n",), (b"800\n",)]
        (group_path / "memory.peak").write_text("800\n")
        assert list(repetition.values) == list(source.read(1.15))
        assert 1.15 < repetition.until < 2.1
        (group_path / "memory.peak").write_text("900")
        assert values(source, 1.2)["memory.window"] == 900
        (group_path / "memory.stat").write_text("anon 500\nfile 200\nshmem 30")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_while_the_tree_sleeps_details_are_read_every_two_seconds_but_memory_each_second(
    tmp_path: Path, version: int, alone: bool
) -> None:
    context = version1(tmp_path) if version == 1 else version2(tmp_path)
    path = tmp_path / ("memory/jobs/7" if version == 1 else "cgroup/a/b")
    (path / "memory.swap.current").write_text("5\n")
    for name in ("memory.stat", "cpu.stat"):
        (path.parent / name).write_text("pages 1\n")
    tree = Ended({}, resting=True, sleeps=True)
    own = SimpleNamespace(path=str(path)) if alone else None
    source = open_source(context._replace(own_cgroup=cast("Any", own), tree=cast("Any", tree)))
    values(source, 1.0)
    (path / "memory.peak").write_text("800\n")
    (path / "memory.max_usage_in_bytes").write_text("300\n")  # as the kernel does at a reset
    repetition = source.repeats()
    assert repetition is not None
    assert repetition.until == pytest.approx(2.95)
    later = {
        os.readlink(f"/proc/self/fd/{file.descriptor}").removeprefix(f"{path.parent}/"): file.parts[0]
        for file in repetition.files
        if (file.next, file.every) == (pytest.approx(1.95), pytest.approx(1.0))
    }
    name, stat = path.name, (path / "memory.stat").read_bytes()
    if version == 1:
        of_memory = {f"{name}/memory.stat": stat, f"{name}/memory.kmem.usage_in_bytes": b"7\n"}
        swap = {f"{name}/memory.stat": b"total_swap 5\n"}
    else:
        swap = {f"{name}/memory.swap.current": b"5\n"}
        of_memory = {f"{name}/memory.stat": stat} | swap
    updating = {"memory.stat": b"\n"} | ({} if version == 1 else {f"{name}/cpu.stat": b"\n"})
    assert later == (updating | of_memory if alone else swap)
    source.close()


MIB = 1 << 20


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_that_is_the_target_is_read_and_never_reset(tmp_path: Path, version: int) -> None:
    context = version1(tmp_path) if version == 1 else version2(tmp_path)
    path = tmp_path / ("memory/jobs/7" if version == 1 else "cgroup/a/b")
    peak = path / ("memory.max_usage_in_bytes" if version == 1 else "memory.peak")
    peak.write_text("900\n")
    for name in ("self", str(ROOT_PID)):  # the monitor, and perhaps the main process, are elsewhere
        (tmp_path / "proc" / name / "cgroup").write_text("4:memory:/\n" if version == 1 else "0::/\n")
    source = open_source(context._replace(target_group=str(path)))
    assert source.groups.target
    read = values(source)
    assert read["memory.peak"] == 900
    assert read["memory.file"] is not None
    repetition = source.repeats()
    assert repetition is not None
    assert repetition.files[1].parts == (b"900\n",)
    assert not {"memory.window", "memory.window.gap", "outside"} & set(read)
    assert peak.read_text() == "900\n"
    source.close()


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2, len(FILES)])
def test_a_target_that_is_removed_at_its_end_has_its_last_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, noticed: bool
) -> None:
    """They are those after its last process, also if a sample noticed the removal first. Other files are missing.

    If the removal came between two of these readings, only the watermark is known.
    """
    context = version2(tmp_path)
    path = tmp_path / "cgroup/a/b"
    source = open_source(context._replace(target_group=str(path)))
    values(source)
    (path / "memory.peak").write_text("950\n")
    contents = {name: (path / name).read_bytes() for name in FILES[:kept]}

    def removed(fd: int, size: int, offset: int) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "pread", removed)
    if noticed:
        values(source, 2.0)
    source.keep_last(contents)
    last = values(source, 3.0)
    assert last.get("memory.peak") == (950 if kept else None)
    assert last.get("memory.usage") == (800 if kept == len(FILES) else None)
    assert source.removed is (kept == 0)
    monkeypatch.undo()
    source.close()


def test_a_probe_finds_charged_memory_between_two_samples(tmp_path: Path) -> None:
    context = version2(tmp_path)
    path = tmp_path / "cgroup/a/b"
    (path / "memory.current").write_text(f"{100 * MIB}\n")
    (path / "memory.peak").write_text(f"{300 * MIB}\n")
    auto = SimpleNamespace(probe_after=1.0)
    source = open_source(context._replace(target_group=str(path), auto=cast("Any", auto)))
    assert source.probe_after == 1.0
    assert not source.probe(0.5)  # before the first sample
    values(source)
    assert not source.probe(1.5)
    for name, mib, found in (("current", 103, False), ("current", 110, True), ("peak", 310, True)):
        before = (path / f"memory.{name}").read_text()
        (path / f"memory.{name}").write_text(f"{mib * MIB}\n")
        assert source.probe(2.5) is found
        (path / f"memory.{name}").write_text(before)
    source.close()
    assert not open_source(context).may_probe

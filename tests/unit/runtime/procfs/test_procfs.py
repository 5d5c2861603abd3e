from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.runtime.procfs import control_group, process, statm, system

DATA = Path(__file__).parents[3] / "data" / "proc"
PAGE = statm.PAGE_SIZE


def data(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_stat_of_a_process() -> None:
    stat = process.parse_stat(data("stat"))
    assert (stat.pid, stat.command, stat.state, stat.ppid) == (4884, "cat", "R", 4879)
    assert (stat.minor_faults, stat.threads, stat.start, stat.virtual) == (145, 1, 379334, 3133440)
    assert stat.stack == 140726308611520


def test_stat_of_a_zombie_has_no_memory_and_no_stack() -> None:
    stat = process.parse_stat(data("stat-zombie"))
    assert stat.state in process.ZOMBIE_STATES
    assert (stat.virtual, stat.stack) == (0, 0)


@given(
    st.binary(min_size=0, max_size=15).filter(lambda name: b"\0" not in name),
    st.lists(st.integers(0, 2**63), min_size=49, max_size=49),
)
def test_stat_reads_its_fields_whatever_the_command_is(command: bytes, numbers: list[int]) -> None:
    line = b"77 (" + command + b") S " + b" ".join(b"%d" % number for number in numbers) + b"\n"
    stat = process.parse_stat(line)
    # numbers[0] is field 4 of proc(5)
    assert (stat.pid, stat.ppid, stat.start, stat.stack) == (77, numbers[0], numbers[18], numbers[24])
    assert stat.cpu_user == numbers[10] / process.CLOCK_TICKS
    assert stat.child_cpu_system == numbers[13] / process.CLOCK_TICKS
    assert (stat.child_minor_faults, stat.child_major_faults) == (numbers[7], numbers[9])
    assert stat.ignores_sigchld == bool(numbers[29] & process.SIGCHLD_BIT)


def test_status_of_a_process() -> None:
    status = process.parse_status(data("status"))
    assert (status.peak, status.anon, status.file, status.shmem) == (1696 << 10, 112 << 10, 1584 << 10, 0)
    assert (status.ignores_sigchld, status.voluntary, status.involuntary) == (False, 0, 0)


def test_status_of_a_zombie_has_no_memory() -> None:
    status = process.parse_status(data("status-zombie"))
    assert (status.peak, status.anon, status.swap) == (None, None, None)
    assert status.voluntary == 1


def test_status_shows_that_the_end_of_children_is_ignored() -> None:
    text = data("status").replace(b"SigIgn:\t0000000000000000", b"SigIgn:\t0000000000010000")
    assert process.parse_status(text).ignores_sigchld
    assert process.parse_ignores_sigchld(text)
    other = data("status").replace(b"SigIgn:\t0000000000000000", b"SigIgn:\t0000000000020000")
    assert not process.parse_ignores_sigchld(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"sort (7, #threads: 1)\n---\nse.sum_exec_runtime : 2.719828\nse.nr_migrations      :        16\nnr_switches : 719\n",
            (2.719828e-3, 16, 719),
        ),
        (b"sort (7, #threads: 1)\n---\nse.sum_exec_runtime : 2.719828\n", None),
        (b"sort (7, #threads: 1)\n---\nse.nr_migrations : 16\n", None),
        (b"sort (7, #threads: 1)\n---\nse.sum_exec_runtime : 2.719828\nse.nr_migrations : 16\n", None),
        (None, None),
    ],
)
def test_the_first_threads_time_and_changes_of_processor(
    text: bytes | None, expected: tuple[float, int, int] | None
) -> None:
    assert process.parse_first_thread(text) == (None if expected is None else pytest.approx(expected))


def test_io_and_resident_and_rollup() -> None:
    assert process.parse_io(data("io")) == process.Io(6976, 0, 0, 0)
    assert statm.parse_resident(data("statm")) == 434 * PAGE
    assert statm.parse_virtual(data("statm")) == int(data("statm").split()[0]) * PAGE
    rollup = process.parse_rollup(data("smaps_rollup"))
    assert (rollup.pss, rollup.swap) == (252 << 10, 0)
    assert 0 < rollup.uss <= rollup.pss
    assert process.parse_rollup(b"") == process.Rollup(0, 0, 0, 0)


@pytest.mark.parametrize("text", [b"", b"x", b"rchar: 1\n"])
def test_text_of_another_file_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        process.parse_io(text)
    with pytest.raises((ValueError, IndexError)):
        process.parse_stat(text)


def test_arguments() -> None:
    assert process.parse_arguments(b"a\0\0b c\0") == ("a", "", "b c")
    assert process.parse_arguments(b"") == ()
    assert process.parse_arguments(b"ray::IDLE" + bytes(900)) == ("ray::IDLE",), "a title over the arguments"
    assert process.parse_arguments(b"nginx: worker -c /a/b\0") == ("nginx:", "worker", "-c", "/a/b"), (
        "a title"
    )
    assert process.parse_arguments(b"/opt/two words/run\0") == ("/opt/two words/run",)
    assert process.parse_arguments(b" \0") == (" ",)
    assert process.parse_arguments(b"printf\0\0\0") == ("printf", "", "")
    assert process.parse_arguments(b"\xff\0")[0].encode("utf-8", "surrogateescape") == b"\xff"


def test_memory_of_the_machine() -> None:
    memory = system.parse_memory(data("meminfo"))
    assert (memory.total, memory.available) == (24684084 << 10, 24055876 << 10)
    assert memory.cached > memory.buffers > 0


def test_memory_before_linux_3_14_is_estimated() -> None:
    memory = system.parse_memory(b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 1 kB\nCached: 20 kB\n")
    assert memory.available == 31 << 10
    with pytest.raises(ValueError, match="MemTotal"):
        system.parse_memory(b"nothing")


def test_load_and_pressure() -> None:
    assert system.parse_load(data("loadavg")) == 0.77
    assert system.parse_pressure(data("pressure")) == {"some": 0.191638, "full": 0.167475}
    assert system.parse_pressure(b"") == {}


@pytest.mark.parametrize("total", [b"", b"\n191638", b"x", b"-"])
def test_pressure_without_its_total_is_refused(total: bytes) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        system.parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=" + total + b"\n")


def test_pressure_of_more_digits_than_the_kernel_writes() -> None:
    assert system.parse_pressure(b"some total=" + b"9" * 400) == {"some": 99999999999999.99999999}


def test_limits() -> None:
    assert control_group.parse_limit(b"max\n") is None
    assert control_group.parse_limit(b"9223372036854771712\n") is None
    assert control_group.parse_limit(b"104857600\n") == 104857600


V1 = control_group.parse_memberships(b"4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/\n")
V2 = control_group.parse_memberships(b"0::/user.slice/a:b.scope\n")


def mounts(*lines: str) -> list[control_group.Mount]:
    return control_group.parse_mounts("\n".join(lines).encode())


def test_hybrid_machine_has_memory_in_version_1() -> None:
    groups = control_group.parse_memberships(data("cgroup-v1"))
    found = control_group.locate(groups, control_group.parse_mounts(data("mountinfo-v1")), "memory")
    assert found == control_group.Location(
        1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/jobs/7", read_only=False
    )
    assert control_group.ancestors(found) == [
        "/sys/fs/cgroup/memory/jobs/7",
        "/sys/fs/cgroup/memory/jobs",
        "/sys/fs/cgroup/memory",
    ]


def test_version_2_path_with_a_colon() -> None:
    found = control_group.locate(
        V2, mounts("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"), "memory"
    )
    assert found is not None
    assert (found.version, found.path) == (2, "/sys/fs/cgroup/user.slice/a:b.scope")


def test_container_whose_paths_are_the_hosts() -> None:
    line = "30 23 0:26 /jobs/7 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory"
    found = control_group.locate(V1, mounts(line), "memory")
    assert found is not None
    assert (found.path, found.read_only) == ("/sys/fs/cgroup/memory", True)
    other = control_group.locate(V1, mounts(line.replace("/jobs/7", "/other")), "memory")
    assert other is not None
    assert other.path == "/sys/fs/cgroup/memory"


def test_group_outside_of_the_namespace_is_taken_to_be_the_root() -> None:
    groups = control_group.parse_memberships(b"0::/../sibling\n")
    found = control_group.locate(
        groups, mounts("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), "memory"
    )
    assert found is not None
    assert found.path == "/sys/fs/cgroup"


def test_mount_points_are_unescaped_and_others_ignored() -> None:
    found = mounts(
        "30 23 0:26 / /a\\040b\\134c rw - cgroup2 cgroup2 rw",
        "31 23 0:27 / /proc rw - proc proc rw",
        "rubbish",
    )
    assert [mount.point for mount in found] == ["/a b\\c"]


def test_nothing_mounted() -> None:
    assert control_group.locate(V1, [], "memory") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [(b"oom_kill", 7), (b"cache", 1), (b"total_cache", 20), (b"last", 3), (b"kill", None), (b"x", None)],
)
def test_one_key_of_a_keyed_file(name: bytes, value: int | None) -> None:
    data = b"cache 1\noom_kill 7\ntotal_cache 20\nunder_oom 0\nlast 3"
    assert control_group.parse_key(data, name) == value
    assert control_group.parse_key(data + b"\n", name) == value
    assert control_group.parse_keyed(data).get(name.decode()) == value


def test_used_memory_alone() -> None:
    data = Path("/proc/meminfo").read_bytes()
    memory = system.parse_memory(data)
    assert system.parse_used(data) == memory.total - memory.available
    assert system.parse_used(b"MemTotal:  10 kB\nMemFree:  5 kB\n") is None


def test_bytes_of_one_fault(tmp_path: Path) -> None:
    assert system.fault_bytes(tmp_path, "6.1.0") == system._FAULT_AROUND
    pages = tmp_path / "kernel/mm/transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    assert system.fault_bytes(tmp_path, "6.1.0") == 2 << 20
    (pages / "hpage_pmd_size").write_text(f"{32 << 20}\n")
    assert system.fault_bytes(tmp_path, "6.1.0") == 32 << 20
    (pages / "enabled").write_text("always madvise [never]\n")
    assert system.fault_bytes(tmp_path, "6.1.0") == system._FAULT_AROUND
    assert (
        system.fault_bytes(tmp_path, "6.18.44-x") == 32 << 20
    )  # the page cache has large folios all the same


def test_other_page_sizes_are_those_in_use(tmp_path: Path) -> None:
    assert system.other_page_sizes(str(tmp_path / "none"), 2 << 20) == []
    for name, enabled, shared in (
        ("hugepages-16kB", "never", "never"),
        ("hugepages-64kB", "madvise", "never"),
        ("hugepages-128kB", "never", "always"),
        ("hugepages-2048kB", "always", "always"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for file, chosen in (("enabled", enabled), ("shmem_enabled", shared)):
            words = (f"[{word}]" if word == chosen else word for word in ("always", "madvise", "never"))
            (folder / file).write_text(" ".join(words) + "\n")
    assert system.other_page_sizes(str(tmp_path), 2 << 20) == [
        (128 << 10, str(tmp_path / "hugepages-128kB")),
        (64 << 10, str(tmp_path / "hugepages-64kB")),
    ]

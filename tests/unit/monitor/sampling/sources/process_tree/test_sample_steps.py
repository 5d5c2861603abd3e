"""The process tree on a made-up /proc: what real processes do not do on demand."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.model import ChildExit, ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
from otel_memwatch.monitor.sampling.repeated import WatchedFile, _are_same
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.process_tree import ProcessTree, accounting, membership
from otel_memwatch.monitor.sampling.sources.process_tree.discovery import ForkCounter
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors, KeptFile
from otel_memwatch.runtime.kernel import PROCESSORS_VARIABLE, rss_error
from otel_memwatch.runtime.procfs.process import SIGCHLD_BIT
from tests.support.proc_tree import ProcTree

MIB = 1 << 20
ME = os.getpid()
IO = "rchar: {}\nwchar: 0\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"


class Watched(NamedTuple):
    tree: ProcessTree
    records: list[ProcessRecord]

    def tick(self, now: float) -> dict[str, object]:
        values = self.tree.read(now)
        return {
            " ".join(
                [column.metric.removeprefix("memwatch."), *(value for _, value in column.attributes)]
            ): value
            for column, value in zip(self.tree.columns, values, strict=True)
        }

    def told(self, event: ProcessEvent) -> list[int]:
        return [record.pid for record in self.records if record.event is event]


@pytest.fixture
def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary files can be read after their removal: nothing is kept open, so a removed process is gone."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self: setattr(self, "free", 0))


def open_tree(
    proc: ProcTree, root: int = 50, *, adopt: bool = False, own_cgroup: OwnCgroup | None = None
) -> Watched:
    records: list[ProcessRecord] = []
    context = Context(
        root, 0.1, adopt=adopt, proc=proc.path, on_process=records.append, own_cgroup=own_cgroup
    )
    return Watched(ProcessTree(context), records)


@pytest.mark.parametrize(("errors", "noticed"), [(0.4, False), (1, False), (1.2, True)])
def test_a_watermark_falls_a_little_by_itself(tmp_path: Path, errors: float, noticed: bool) -> None:
    """The kernel notes it from counters of anonymous pages, files and shared memory, each of which holds pages back."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=8 * MIB, peak=64 * MIB)
    watched = open_tree(proc)
    watched.tick(1000.0)
    proc.process(50, 1, rss=7 * MIB, peak=64 * MIB - int(errors * rss_error()), minor=11)
    for now in (1001.0, 1003.0, 1005.0):
        watched.tick(now)
    assert (ProcessNote.WATERMARK_RESET in {record.note for record in watched.records}) is noticed


@pytest.mark.parametrize("children_files", [True, False])
def test_descendants_are_found_with_and_without_children_files(tmp_path: Path, children_files: bool) -> None:
    proc = ProcTree(tmp_path / "proc", children_files=children_files)
    for pid, parent in ((50, 1), (51, 50), (52, 51), (60, 1), (61, 60)):
        proc.process(pid, parent, rss=10 * MIB)
    watched = open_tree(proc)
    tick = watched.tick(1.0)
    assert watched.told(ProcessEvent.SEEN) == [50, 51, 52]
    assert tick["tree.memory.usage"] == 30 * MIB
    assert watched.tree.pids() == (50, 51, 52)


@pytest.mark.parametrize("children_files", [True, False])
def test_new_processes_are_found_by_the_fork_counter_alone(tmp_path: Path, children_files: bool) -> None:
    proc = ProcTree(tmp_path / "proc", children_files=children_files)
    proc.process(50, 1)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(101, 50)
    proc.process(102, 101)
    proc.process(103, 7)
    assert watched.tick(1.1)["tree.process.count"] == 1
    proc.last_pid(103)
    assert watched.tick(1.2)["tree.process.count"] == 3
    assert watched.told(ProcessEvent.SEEN) == [50, 101, 102]


def test_a_process_of_a_large_tree_that_begins_to_ignore_sigchld_is_found_before_its_status_is_read(
    tmp_path: Path,
) -> None:
    """Its stat says so too. Of 30 processes a sample reads three statuses in turn."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    for pid in range(51, 80):
        proc.process(pid, 50)
    watched = open_tree(proc)
    watched.tick(1.0)
    assert watched.tick(1.1)["tree.unobserved"] == 0
    proc.process(79, 50, ignored=SIGCHLD_BIT)
    proc.last_pid(130)
    assert watched.tick(1.2)["tree.unobserved"] == 30


@pytest.mark.parametrize("state", ["S", "Z"])
def test_a_process_that_ignores_sigchld_is_noted_for_it_first(tmp_path: Path, state: str) -> None:
    """It is denied or a zombie as well. Its children of 80 MiB were in no bound of the largest process, which was 10.2 MiB."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50, state=state, io=None, ignored=SIGCHLD_BIT)
    watched = open_tree(proc)
    watched.tick(1.0)
    notes = {record.pid: record.note for record in watched.records}
    assert notes == {50: None, 51: ProcessNote.IGNORES_CHILDREN}


def test_listing_finds_what_the_fork_counter_does_not_lead_to(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(9000, 50)
    assert watched.tick(1.5)["tree.process.count"] == 1
    assert watched.tick(2.5)["tree.process.count"] == 2


def test_children_are_listed_only_if_a_process_has_run(tmp_path: Path) -> None:
    """A process that sleeps begins no other: what its file of children says then is made up."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    schedule = proc.path / "50" / "schedstat"
    schedule.write_text("9 9 9\n")
    watched = open_tree(proc)
    for now in (1.0, 1.1, 1.2, 1.3, 2.4, 2.9, 3.4):
        watched.tick(now)
    proc.process(9000, 50)
    for now in (3.9, 4.6, 4.7, 5.8):
        assert watched.tick(now)["tree.process.count"] == 1
    schedule.write_text("9 9 10\n")
    watched.tick(5.9)
    assert watched.tick(6.0)["tree.process.count"] == 2


def test_numbers_start_again_after_the_largest(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.last_pid(32766)
    forks = ForkCounter(str(proc.path), Descriptors())
    proc.last_pid(2)
    assert forks.between(32766, forks.read()) == 4
    assert list(forks.given(32766, 2)) == [32767, 0, 1, 2]


def test_orphans_that_become_our_children_are_adopted_but_not_older_children(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(40, ME, "older", start=90.0)
    proc.process(50, ME, start=100.0)
    watched = open_tree(proc, adopt=True)
    watched.tick(1.0)
    proc.process(55, ME, "orphan", start=101.0)
    watched.tick(2.5)
    assert watched.told(ProcessEvent.SEEN) == [50, 55]


def test_a_thread_is_no_process(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc", children_files=False)
    proc.process(50, 1)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(101, 50)
    status = proc.path / "101/status"
    status.write_text(status.read_text().replace("Tgid:\t101", "Tgid:\t50"))
    proc.last_pid(101)
    assert watched.tick(1.1)["tree.process.count"] == 1


@pytest.mark.usefixtures("no_descriptors")
def test_a_process_that_vanishes_is_reported_once(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50, user=2.0)
    watched = open_tree(proc)
    assert watched.tick(1.0)["tree.cpu.time user"] == 2.0
    proc.remove(51, 50)
    assert watched.tick(1.1)["tree.cpu.time user"] == 2.0
    proc.process(50, 1, child_user=2.5)
    assert watched.tick(1.2)["tree.cpu.time user"] == 2.5
    assert watched.told(ProcessEvent.EXIT) == [51]
    watched.tree.finish(1.3)
    assert watched.told(ProcessEvent.EXIT) == [51]
    assert [record.note for record in watched.records if record.pid == 50][-1] == "alive at the end"


@pytest.mark.usefixtures("no_descriptors")
def test_a_process_may_have_lived_until_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor waits for a processor for 50 ms between the sample's time and the reading."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.remove(51, 50)
    moments = itertools.chain([7.0], itertools.repeat(7.05))
    monkeypatch.setattr(membership, "monotonic", lambda: next(moments))
    watched.tick(1.1)
    (end,) = [record.time for record in watched.records if record.event is ProcessEvent.EXIT]
    assert end == pytest.approx(1.15)


@pytest.mark.usefixtures("no_descriptors")
def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50, "first", start=100.0)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(51, 50, "second", start=200.0)
    watched.tick(2.5)
    watched.tick(4.0)
    assert watched.told(ProcessEvent.EXIT) == [51]
    seen = [
        (record.command, record.start) for record in watched.records if record.pid == 51 and record.command
    ]
    assert [command for command, _ in seen] == ["first", "second"]
    assert seen[1][1] - seen[0][1] == pytest.approx(100.0, abs=0.01)


def test_uncounted_io_is_unknown(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, io=None)
    tick = open_tree(proc).tick(1.0)
    assert tick["tree.disk.io read"] is None
    assert tick["tree.syscall.io write"] is None
    assert tick["process.disk.io read"] is None
    assert tick["tree.memory.usage"] == MIB


def test_io_that_becomes_readable_counts(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, io=None)
    watched = open_tree(proc)
    assert watched.tick(1.0)["tree.disk.io write"] is None
    proc.process(50, 1, io=(1, 2, 3, 4))
    watched.tick(2.0)
    assert watched.tick(3.0)["tree.disk.io write"] == 4


def test_zombies_have_no_memory_and_do_not_live(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=5 * MIB, user=1.0)
    proc.process(51, 50, rss=7 * MIB, user=3.0)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(51, 50, state="Z", rss=0, user=3.5, stack=0)
    tick = watched.tick(1.1)
    assert (tick["tree.memory.usage"], tick["tree.process.count"]) == (5 * MIB, 1)
    assert tick["tree.cpu.time user"] == 4.5
    assert watched.tree.pids() == (50,)
    assert not [record for record in watched.records if record.note == "exec"]


def reaped(pid: int, time: float, stat: bytes, max_rss: int, minor_faults: int) -> ChildExit:
    """The end of a child as the supervisor reports it."""
    return ChildExit(
        pid,
        time,
        start=None,
        exit_code=0,
        signal=None,
        max_rss=max_rss,
        cpu_user=0.0,
        cpu_system=0.0,
        minor_faults=minor_faults,
        major_faults=0,
        stat=stat,
        io=None,
        status=None,
        main=True,
    )


@pytest.mark.usefixtures("no_descriptors")
def test_the_children_of_a_process_that_ends_while_it_is_read_count_at_that_sample(tmp_path: Path) -> None:
    """Its stat was read, its memory no more: the faults of a child that no sample saw are in this stat already."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, ME, minor=100)
    proc.last_pid(50)
    watched = open_tree(proc, adopt=True)
    watched.tick(1.0)
    proc.process(50, ME, minor=110, child_minor=4000)
    proc.last_pid(51)
    stat = (proc.path / "50/stat").read_bytes()
    (proc.path / "50/statm").unlink()
    assert watched.tick(1.1)["tree.unobserved"] == 1
    watched.tree.note_exit(reaped(50, 1.15, stat, MIB, 4110))
    tick = watched.tick(1.2)
    assert (tick["tree.unobserved"], tick["tree.unobserved.faults"]) == (1, 4000)


@pytest.mark.usefixtures("no_descriptors")
def test_a_process_that_ends_before_its_parent_is_read_again_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sibling had ended, so the parent is read again, and has inherited the CPU time of both."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50, user=2.0)
    proc.process(52, 50, user=1.0)
    watched = open_tree(proc)
    assert watched.tick(1.0)["tree.cpu.time user"] == 3.0
    vanish = membership.Membership._vanish

    def vanish_after_another(self: membership.Membership, *given: Any) -> None:
        if (proc.path / "51").exists():
            proc.remove(51, 50)
            proc.process(50, 1, child_user=3.0, child_minor=20)
        vanish(self, *given)

    monkeypatch.setattr(membership.Membership, "_vanish", vanish_after_another)
    proc.remove(52, 50)
    assert watched.tick(1.1)["tree.cpu.time user"] == 3.0
    assert watched.told(ProcessEvent.SEEN) == [50, 51, 52]
    assert watched.tick(1.2)["tree.cpu.time user"] == 3.0


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_bytes_that_a_zombies_files_do_not_tell_are_those_of_wait4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool, seen: bool
) -> None:
    monkeypatch.setattr(accounting, "counts_io", lambda: counted)
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, io=(10, 20, 4096, 8192) if seen else None)
    watched = open_tree(proc)
    watched.tick(1.0)
    stat = (proc.path / "50/stat").read_bytes()
    end = reaped(50, 1.05, stat, MIB, 10)._replace(read_bytes=12288, write_bytes=16384)
    watched.tree.note_exit(end)
    tick = watched.tick(1.1)
    (record,) = [record for record in watched.records if record.event == "exit"]
    before = (4096, 8192) if seen else (None, None)
    told = (12288, 16384) if counted else before
    assert (tick["tree.disk.io read"], tick["tree.disk.io write"]) == told
    assert (record.read_bytes, record.write_bytes) == told
    assert (record.read_chars, tick["tree.syscall.io read"]) == ((10, 10) if seen else (None, None))


def test_what_it_had_before_an_exec_is_bounded_by_what_the_kernel_shows_in_the_end(tmp_path: Path) -> None:
    """300 MiB between the last reading and the exec: the watermarks that were read are no bound."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, ME, rss=8 * MIB, stack=777, minor=1000)
    watched = open_tree(proc, adopt=True)
    watched.tick(1.0)
    proc.process(50, ME, "sleep", rss=2 * MIB, stack=888, minor=80_000)
    watched.tick(1.1)
    watched.tick(1.2)
    stat = (proc.path / "50/stat").read_bytes()
    watched.tree.note_exit(reaped(50, 1.3, stat, 300 * MIB, minor_faults=80_000))
    watched.tree.finish(1.3)
    exits = [record for record in watched.records if record.event is ProcessEvent.EXIT]
    assert [(record.peak, record.peak_bound) for record in exits] == [(8 * MIB, 300 * MIB)]


@pytest.mark.parametrize(("forked", "bound"), [(0, 88 * MIB), (64, 2 * MIB)])
def test_a_copy_of_its_parent_before_the_first_sample_is_in_the_bound(
    tmp_path: Path, forked: int, bound: int
) -> None:
    """A daemon was a copy of 88 MiB, executed a small program, and lost its parent, all before a sample saw it."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, ME, rss=MIB, minor=10)
    proc.process(51, 50, "daemon", rss=2 * MIB, minor=20, flags=forked)
    watched = open_tree(proc, adopt=True)
    watched.tick(1.0)
    stat = (proc.path / "51/stat").read_bytes()
    watched.tree.note_exit(reaped(51, 1.3, stat, 88 * MIB, minor_faults=20)._replace(main=False))
    watched.tick(1.4)
    (end,) = [record for record in watched.records if record.event is ProcessEvent.EXIT]
    assert (end.peak, end.peak_bound) == (2 * MIB, bound)


def test_what_it_had_before_an_exec_bounds_a_process_that_outlives_the_record(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=8 * MIB, stack=777, minor=1000)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(50, 1, "sleep", rss=2 * MIB, stack=888, minor=1100)
    watched.tick(1.1)
    watched.tree.finish(1.2)
    bound = watched.records[-1].peak_bound
    assert bound is not None
    assert bound >= 8 * MIB + 100 * os.sysconf("SC_PAGE_SIZE")


def test_child_of_vfork_shares_its_parents_memory_until_it_executes(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, state="D", rss=100 * MIB, stack=777, virtual=1 << 28)
    proc.process(51, 50, rss=100 * MIB, stack=777, virtual=1 << 28)
    watched = open_tree(proc)
    assert watched.tick(1.0)["tree.memory.usage"] == 100 * MIB
    assert watched.tree.pids() == (50,)
    proc.process(50, 1, state="S", rss=100 * MIB, stack=777, virtual=1 << 28)
    proc.process(51, 50, "true", rss=2 * MIB, stack=888, virtual=1 << 22)
    assert watched.tick(1.1)["tree.memory.usage"] == 102 * MIB
    child = [record for record in watched.records if record.pid == 51]
    assert child[0].note == "runs in its parent's memory"
    assert child[0].peak is None
    assert (child[-1].command, child[-1].note) == ("true", "exec")


def test_forked_child_counts_although_it_shares_pages(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, state="S", rss=100 * MIB, stack=777)
    proc.process(51, 50, rss=95 * MIB, stack=777)
    assert open_tree(proc).tick(1.0)["tree.memory.usage"] == 195 * MIB


def test_watermarks_of_a_large_tree_are_read_in_turn(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    for pid in range(1000, 1060):
        proc.process(pid, 50, peak=MIB)
    watched = open_tree(proc)
    watched.tick(1.0)
    for pid in range(1000, 1060):
        proc.process(pid, 50, peak=9 * MIB)
    for step in range(1, 12):
        watched.tick(1.0 + step / 10)
    watched.tree.finish(3.0)
    last = {record.pid: record.peak for record in watched.records}
    assert {last[pid] for pid in range(1000, 1060)} == {9 * MIB}


def test_figures_are_reported_when_they_change_and_not_all_the_time(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=10 * MIB)
    watched = open_tree(proc)
    for step in range(50):
        watched.tick(1.0 + step / 10)
    assert watched.told(ProcessEvent.FIGURES) == []
    proc.process(50, 1, rss=20 * MIB)
    for step in range(50, 100):
        watched.tick(1.0 + step / 10)
    assert watched.told(ProcessEvent.FIGURES) == [50]


def test_the_monitor_is_never_in_the_tree(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50, "monitor")
    proc.process(52, 51, "of the monitor")
    context = Context(50, 0.1, proc=proc.path, exclude=frozenset({51}))
    tree = ProcessTree(context)
    tree.read(1.0)
    assert tree.pids() == (50,)


@pytest.mark.usefixtures("no_descriptors")
def test_what_vanished_after_the_last_tick_has_ended(tmp_path: Path) -> None:
    """Its parent waited for it: the result for that one's parent covers it, so it must not pass for a living process."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.remove(51, 50)
    watched.tree.finish(2.0)
    last = {record.pid: (record.event, record.note) for record in watched.records}
    assert last == {51: (ProcessEvent.EXIT, None), 50: (ProcessEvent.FIGURES, "alive at the end")}


def test_attach_to_no_process(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    with pytest.raises(Unavailable, match="no process 50"):
        open_tree(proc)


def test_known_members_stay_when_init_adopts_them(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1)
    proc.process(51, 50)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(51, 1)
    proc.process(101, 51)
    proc.last_pid(101)
    watched.tick(2.5)
    assert watched.tree.pids() == (50, 51, 101)


def test_what_joins_the_tree_later_does_not_bring_in_its_past(tmp_path: Path) -> None:
    """An orphan that was given to the target, as to a subreaper, ran elsewhere before."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, start=10.0, user=7.0, io=(0, 0, 0, 5 * MIB))
    proc.process(60, 1, start=20.0, user=300.0, child_user=100.0, minor=70, io=(0, 0, 0, 80 * MIB))
    watched = open_tree(proc)
    assert watched.tick(200.0)["tree.cpu.time user"] == 7.0
    proc.process(60, 50, start=20.0, user=300.0, child_user=100.0, minor=70, io=(0, 0, 0, 80 * MIB))
    proc.process(101, 50, start=201.0, user=2.0)
    proc.last_pid(101)
    tick = watched.tick(202.0)
    assert watched.tree.pids() == (50, 60, 101)
    assert (tick["tree.cpu.time user"], tick["tree.disk.io write"]) == (9.0, 5 * MIB)
    assert tick["tree.paging.faults minor"] == 20
    proc.process(60, 50, start=20.0, user=301.0, child_user=100.0, minor=70, io=(0, 0, 0, 81 * MIB))
    tick = watched.tick(203.0)
    assert (tick["tree.cpu.time user"], tick["tree.disk.io write"]) == (10.0, 6 * MIB)


@pytest.mark.parametrize(("began", "written"), [(200.009, 80 * MIB), (200.011, 0)])
def test_a_process_as_young_as_a_clock_tick_brings_in_its_bytes(
    tmp_path: Path, began: float, written: int
) -> None:
    """The kernel rounds its start down to 10 ms: it may have begun after the first sample."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, start=10.0)
    watched = open_tree(proc)
    watched.tick(began)
    proc.process(60, 50, start=200.0, io=(0, 0, 0, 80 * MIB))
    proc.last_pid(60)
    assert watched.tick(200.1)["tree.disk.io write"] == written


def test_what_was_there_before_explains_no_new_pids(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    for pid in (50, 51, 52):
        proc.process(pid, max(1, pid - 1) if pid > 50 else 1, child_minor=9)
    watched = open_tree(proc)
    proc.last_pid(103)
    proc.process(50, 1, child_minor=10)
    # three pids were given since, and the three processes seen are older
    assert watched.tick(1.0)["tree.unobserved"] == 3


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a" * 5000)
    descriptors = Descriptors(1)
    first, second = KeptFile(str(path), descriptors), KeptFile(str(path), descriptors)
    assert len(first.read()) == len(second.read()) == 4096
    assert (first.kept, second.kept, descriptors.free) == (True, False, 0)
    assert len(first.read_all()) == len(second.read_all()) == 5000
    first.close()
    assert descriptors.free == 1
    second.read()
    assert second.kept
    second.close()


def test_the_last_watermark_is_read_when_the_record_ends(tmp_path: Path) -> None:
    """What a process reached after the last tick is in its final figures."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=10 * MIB)
    watched = open_tree(proc)
    watched.tick(1.0)
    proc.process(50, 1, rss=10 * MIB, peak=90 * MIB)
    watched.tree.finish(1.05)
    assert (watched.records[-1].note, watched.records[-1].peak) == ("alive at the end", 90 * MIB)


def test_a_process_that_is_ending_has_no_final_figures(tmp_path: Path) -> None:
    """Between giving its memory back and being a zombie it looks alive; what it had since the last tick is unknown."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=10 * MIB)
    watched = open_tree(proc)
    watched.tick(1.0)
    status = proc.path / "50/status"
    kept = [line for line in status.read_text().splitlines() if not line.startswith(("Vm", "Rss"))]
    proc._write(status, "\n".join([*kept, ""]))
    watched.tree.finish(1.05)
    assert watched.records[-1].pid == 50
    assert watched.records[-1].note is None


def own_group(path: Path, version: int) -> OwnCgroup:
    """A control group made of ordinary files."""
    path.mkdir()
    for name in ("tasks", "cgroup.procs", "memory.peak", "memory.max_usage_in_bytes"):
        (path / name).write_text("0\n")
    return OwnCgroup(str(path), version)


def told_to_have_left(watched: Watched) -> list[int]:
    return [record.pid for record in watched.records if record.note == ProcessNote.LEFT_CGROUP]


def test_who_is_outside_the_own_group_is_reported_once(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    places = {50: "/jobs/own-1", 51: "/jobs/own-1/below", 52: "/jobs/own", 53: "/jobs/other"}
    for pid, place in places.items():
        proc.process(pid, 50 if pid > 50 else ME)
        (proc.path / str(pid) / "cgroup").write_text(f"4:memory:{place}\n0::/\n")
    watched = open_tree(proc, own_cgroup=own_group(tmp_path / "own-1", 1))
    watched.tick(1.0)
    assert told_to_have_left(watched) == [52, 53]
    (proc.path / "51" / "cgroup").write_text("4:memory:/\n0::/\n")
    for tick in range(10, 40):
        watched.tick(1.0 + tick / 10)
    assert told_to_have_left(watched) == [52, 53, 51]


@pytest.mark.parametrize(("flags", "left"), [(0, [51]), (0x4, []), (0x404044, [])])
def test_who_is_ending_is_not_taken_for_outside(tmp_path: Path, flags: int, left: list[int]) -> None:
    """Version 1 says of a process that is ending that it is in the root group."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, ME)
    proc.process(51, 50)
    (proc.path / "50" / "cgroup").write_text("4:memory:/own-1\n")
    (proc.path / "51" / "cgroup").write_text("4:memory:/\n")
    stat = (proc.path / "51" / "stat").read_text()
    name, fields = stat.split(") ")
    state = fields.split(" ")
    state[6] = str(flags)
    (proc.path / "51" / "stat").write_text(f"{name}) {' '.join(state)}")
    watched = open_tree(proc, own_cgroup=own_group(tmp_path / "own-1", 1))
    watched.tick(1.0)
    assert told_to_have_left(watched) == left


@pytest.mark.parametrize(
    ("version", "cgroup", "left"),
    [
        (2, b"0::/elsewhere\n", [61]),
        (2, b"0::/own-1\n", []),
        (2, b"0::/own-1/below (deleted)\n", []),
        (2, None, []),
        (1, b"4:memory:/\n0::/\n", []),
    ],
)
def test_where_a_child_ended_that_no_tick_saw(
    tmp_path: Path, version: int, cgroup: bytes | None, left: list[int]
) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, ME)
    proc.process(61, ME)
    stat = (proc.path / "61" / "stat").read_bytes()
    proc.remove(61, ME)
    watched = open_tree(proc, adopt=True, own_cgroup=own_group(tmp_path / "own-1", version))
    watched.tick(1.0)
    watched.tree.note_exit(reaped(61, 1.05, stat, 200 * MIB, 50)._replace(cgroup=cgroup, main=False))
    watched.tick(1.1)
    assert told_to_have_left(watched) == left
    assert watched.told(ProcessEvent.EXIT) == [61]


@pytest.mark.usefixtures("no_descriptors")
def test_all_ends_count_whichever_is_reported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child vanished while its parent was alive, so the parent seemed to have waited for it. It had ended too."""
    monkeypatch.setenv(PROCESSORS_VARIABLE, "64")
    proc = ProcTree(tmp_path / "proc")
    proc.last_pid(50)
    proc.process(50, ME)
    watched = open_tree(proc, adopt=True, own_cgroup=own_group(tmp_path / "own-1", 2))
    watched.tick(1.0)
    proc.process(51, 50)
    proc.last_pid(51)
    watched.tick(1.1)
    ends = [
        reaped(pid, 1.15, (proc.path / f"{pid}/stat").read_bytes(), MIB, 10)._replace(switches=switches)
        for pid, switches in ((50, 5), (51, 7))
    ]
    proc.remove(51, 50)
    watched.tick(1.2)
    proc.remove(50, ME)
    for end in ends:
        watched.tree.note_exit(end)
    watched.tick(1.3)
    assert [record.placements for record in watched.records if record.placements is not None] == [14]


def test_a_process_is_read_further_once_its_stat_changes_or_half_a_second_has_passed(tmp_path: Path) -> None:
    """Without a page fault it has no more memory than before."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=4 * MIB)
    watched = open_tree(proc)
    watched.tick(1.0)
    assert not watched.tree.resting
    unread, pages = proc.path / "50/io", os.sysconf("SC_PAGE_SIZE")
    unread.write_text(IO.format(9))
    assert watched.tick(1.1)["tree.syscall.io read"] == 0
    assert watched.tree.resting
    proc.process(50, 1, rss=5 * MIB, minor=10 + MIB // pages, io=(9, 0, 0, 0))
    tick = watched.tick(1.2)
    assert (tick["tree.syscall.io read"], tick["tree.memory.usage"]) == (9, 5 * MIB)
    unread.write_text(IO.format(10))
    assert watched.tick(1.3)["tree.syscall.io read"] == 9
    assert watched.tick(1.6)["tree.syscall.io read"] == 10


def test_a_tree_at_rest_is_read_again_as_soon_as_something_changes(tmp_path: Path) -> None:
    """Each of these begins with a sample that found no change."""
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=4 * MIB)
    proc.process(51, 50, rss=MIB)
    watched = open_tree(proc)
    at_rest = [watched.tick(now) for now in (1.0, 1.1, 1.2, 1.3)][-1]
    assert watched.tree.resting
    assert watched.tick(1.31) == at_rest
    proc.process(50, 1, rss=3 * MIB, user=0.5)
    grown = watched.tick(1.32)
    assert (grown["tree.memory.usage"], grown["tree.cpu.time user"]) == (4 * MIB, 0.5)
    watched.tick(1.33)
    assert watched.tree.resting
    proc.process(101, 51)
    proc.last_pid(101)
    assert watched.tick(1.34)["tree.process.count"] == 3
    assert not watched.tree.resting


def test_a_tree_that_sleeps_is_read_again_if_another_process_changes_its_memory(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    for pid, parent in ((50, 1), (51, 50)):
        proc.process(pid, parent, rss=4 * MIB, peak=5 * MIB)
        (proc.path / str(pid) / "schedstat").write_text("9 9 9\n")
    watched = open_tree(proc)
    for now in (1000.0, 1000.1, 1000.2, 1000.3, 1000.7, 1001.3, 1002.4):
        tick = watched.tick(now)
    assert watched.tree._tree.sleep.asleep
    repetition = watched.tree.repeats()
    assert repetition is not None
    assert repetition.until == pytest.approx(1004.4, abs=0.06)
    assert list(watched.tree.read(1003.2)) == list(repetition.values)
    asleep = watched.tick(1003.4)
    assert asleep.pop("process.uptime") == pytest.approx(tick.pop("process.uptime") + 1.0)
    assert asleep == tick

    proc.process(50, 1, rss=4 * MIB, peak=6 * MIB)
    assert watched.tick(1004.4)["process.memory.peak"] == 6 * MIB
    assert watched.tree._tree.sleep.asleep
    proc.process(51, 50, rss=3 * MIB, peak=5 * MIB)
    assert watched.tick(1005.4)["tree.memory.usage"] == 7 * MIB
    (proc.path / "51" / "schedstat").write_text("9 9 10\n")
    proc.process(51, 50, rss=2 * MIB, peak=5 * MIB, minor=11)
    assert watched.tick(1005.5)["tree.memory.usage"] == 6 * MIB


def at_rest(proc: ProcTree, *, members: int = 2) -> Watched:
    """Return a tree of processes that have slept for some samples."""
    for pid in range(50, 50 + members):
        proc.process(pid, 1 if pid == 50 else 50, rss=4 * MIB, peak=5 * MIB)
        (proc.path / str(pid) / "schedstat").write_text("9 9 9\n")
        status = proc.path / str(pid) / "status"
        status.write_text(f"{status.read_text()}SigQ:\t3/900\nThreads:\t1\n")
    watched = open_tree(proc)
    for now in (1000.0, 1000.1, 1000.2, 1000.3, 1000.7, 1001.3, 1002.4):
        watched.tick(now)
    assert watched.tree._tree.sleep.asleep
    return watched


def test_repeated_samples_read_memory_each_second_while_all_sleep(tmp_path: Path) -> None:
    """Other programs change the memory of a process that sleeps: the kernel reclaims it, or a debugger writes it."""
    proc = ProcTree(tmp_path / "proc")
    watched = at_rest(proc)
    repetition = watched.tree.repeats()
    assert repetition is not None
    assert watched.tree.sleeps
    later = [file for file in repetition.files if file.every == 1.0]
    assert [round(file.next, 2) for file in later] == [1003.35] * 4
    assert repetition.until == pytest.approx(1004.35)
    mark = watched.tree._tree.members[50].watermark
    assert mark.last_faults is not None
    for member in watched.tree._tree.members.values():
        member.watermark.faults = -1
    contents: list[bytes | None] = [b"" for _ in repetition.files]
    watched.tree.note_repeated([*contents[:-1], None])
    assert mark.faults == -1, "no status was read"
    watched.tree.note_repeated(contents)
    assert mark.faults == mark.last_faults
    assert all(is_same(file) for file in later)

    status = proc.path / "51" / "status"
    unchanged = status.read_text()
    status.write_text(unchanged.replace("3/900", "17/900"))
    assert all(is_same(file) for file in later), "signals of other processes"
    status.write_text(unchanged.replace("5120 kB", "6144 kB"))
    assert unchanged != status.read_text()
    assert [is_same(file) for file in later].count(False) == 1
    status.write_text(unchanged)
    statm = proc.path / "50" / "statm"
    statm.write_text(f"9{statm.read_text()}")
    assert [is_same(file) for file in later].count(False) == 1


def is_same(file: WatchedFile) -> bool:
    """Return whether the file is as it was."""
    return _are_same((file,), file.next, [file.next], [None])


@pytest.mark.parametrize("state", ["D", "R"])
def test_repeated_samples_end_each_second_if_a_process_may_wait_for_a_disk(
    tmp_path: Path, state: str
) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=4 * MIB, state=state)
    (proc.path / "50" / "schedstat").write_text("9 9 9\n")
    watched = open_tree(proc)
    for now in (1000.0, 1000.1, 1000.2, 1000.3, 1000.7, 1001.3, 1002.4):
        watched.tick(now)
    repetition = watched.tree.repeats()
    assert not watched.tree.sleeps
    assert repetition is None or repetition.until == pytest.approx(1003.35 if state == "D" else 1002.85)

"""What bounds needed memory without a control group, on a /proc of ordinary files."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.model import ChildExit, ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.process_tree import allocations, fault_bounds, held_memory
from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import MemoryScan
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors
from otel_memwatch.monitor.sampling.sources.process_tree.sample_steps import ProcessTree
from otel_memwatch.runtime.kernel import KERNEL_STACK, PROCESSORS_VARIABLE, rss_error
from otel_memwatch.runtime.procfs import address_spaces
from otel_memwatch.runtime.procfs.system import AllocationCounters
from otel_memwatch.runtime.procfs.walks import read_walking
from otel_memwatch.truth.kernel_memory import likely_of_tasks
from otel_memwatch.truth.process import sum_error
from tests.support.proc_tree import ProcTree

MIB = 1 << 20


_trees: list[ProcessTree] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """The files of all trees, of one of them thousands, are closed after each test: no other gets numbers as large."""
    yield
    while _trees:
        _trees.pop().finish(2000.0)


class Watched:
    """A tree of one process that has begun with an exec, and the bound of its last tick."""

    def __init__(
        self,
        path: Path,
        bound: str = "memwatch.tree.memory.needed.high",
        on_process: Callable[[ProcessRecord], None] = lambda record: None,
    ) -> None:
        self._bound = bound
        self.proc = ProcTree(path / "proc")
        (self.proc.path / "vmstat").write_text("nr_free_pages 1\nnr_shmem 0\n")
        self.proc.process(50, 1, rss=MIB, stack=8192)
        (path / "sys").mkdir()
        self.tree = ProcessTree(
            Context(
                50,
                0.1,
                proc=self.proc.path,
                sys=path / "sys",
                adopt=True,
                allocated_before=AllocationCounters(0, 0, 0),
                on_process=on_process,
            )
        )
        _trees.append(self.tree)
        self.now = 1000.0

    def high(self) -> int:
        """The bound since the tick before, or what `bound` names instead."""
        self.now += 0.1
        values = self.tree.read(self.now)
        (index,) = [place for place, column in enumerate(self.tree.columns) if column.metric == self._bound]
        value = values[index]
        assert isinstance(value, int)
        return value


def _end(max_rss: int, faults: int, first_thread_ms: float | None = None) -> ChildExit:
    """The end of the first process of `Watched`, which used 12 ms of CPU time and changed its processor three times."""
    stat = f"50 (job) Z 1 1 1 0 -1 0 {faults} 0 0 0 0 0 0 0 20 0 1 0 10000 0 0 0 1 1 8192 0 0 0 0 0\n"
    return ChildExit(
        pid=50,
        time=1000.1,
        start=None,
        exit_code=0,
        signal=None,
        max_rss=max_rss,
        cpu_user=0.008,
        cpu_system=0.004,
        minor_faults=faults,
        major_faults=0,
        stat=stat.encode(),
        io=None,
        status=None,
        main=True,
        sched=None
        if first_thread_ms is None
        else b"job\nse.sum_exec_runtime : %f\nse.nr_migrations : 3\nnr_switches : 9\n" % first_thread_ms,
    )


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures below are of two processors, whose counters may be off by 0.7 MiB of a process."""
    monkeypatch.setenv(PROCESSORS_VARIABLE, "2")


@pytest.mark.parametrize("processors", [1, 2, 3, 4, 16, 64, 256])
@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_a_watermark_counts_as_gained_beyond_the_error_of_any_number_of_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int, beyond: bool, exact: bool
) -> None:
    monkeypatch.setenv(PROCESSORS_VARIABLE, str(processors))
    monkeypatch.setattr(held_memory, "sums_are_exact", lambda: exact)
    watched = Watched(tmp_path)
    watched.high()
    watched.high()
    peak = MIB + sum_error(rss_error(), exact=exact) + (MIB if beyond else -MIB // 4)
    watched.proc.process(50, 1, rss=MIB, peak=peak, minor=10 + 20, stack=8192)
    high = watched.high()
    assert peak <= high + MIB if beyond else high <= 2 * MIB


@pytest.mark.parametrize(
    ("peak", "faults", "least", "most"),
    [
        # filled by userfaultfd and given back, between two ticks
        (41, 20, 40, 43),
        # as much by its page faults: once
        (41, 40 * 256, 40, 43),
        # less than the counters may be off
        (1.4, 20, 1, 1.5),
        # nothing
        (1, 20, 1, 1.5),
    ],
)
def test_a_watermark_beyond_page_faults_counts_as_gained(
    tmp_path: Path, peak: float, faults: int, least: float, most: float
) -> None:
    watched = Watched(tmp_path)
    watched.high()
    watched.high()
    watched.proc.process(50, 1, rss=MIB, peak=int(peak * MIB), minor=10 + faults, stack=8192)
    assert least * MIB <= watched.high() <= most * MIB


@pytest.mark.parametrize("seen_before", [False, True])
@pytest.mark.parametrize(("mark", "most"), [(100, 103), (150, 253)])
def test_the_mark_of_a_parents_copy_is_no_burst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_before: bool, mark: int, most: int
) -> None:
    """The status of a copy is read, then it becomes another program by exec, and then its memory is read."""
    watched = Watched(tmp_path, "memwatch.tree.memory.needed")
    watched.high()
    watched.proc.process(50, 1, rss=100 * MIB, peak=100 * MIB, minor=10 + 25_600, stack=8192)
    watched.high()
    if seen_before:
        watched.proc.process(60, 50, rss=100 * MIB, peak=100 * MIB, minor=100, stack=8192)
        watched.proc.last_pid(60)
        watched.high()
    watched.proc.process(60, 50, rss=100 * MIB, peak=mark * MIB, minor=101, stack=8192)
    watched.proc.last_pid(60)
    read = watched.tree._read_watermarks

    def then_exec(*, all_of_them: bool) -> bool:
        found = read(all_of_them=all_of_them)
        watched.proc.process(60, 50, rss=MIB, peak=MIB, minor=102, stack=16384)
        return found

    monkeypatch.setattr(watched.tree, "_read_watermarks", then_exec)
    assert most - 4 <= watched.high() / MIB <= most
    monkeypatch.setattr(watched.tree, "_read_watermarks", read)
    assert 100 <= watched.high() / MIB <= 103


def test_released_memory_is_in_no_window_after_the_sample_that_found_it(tmp_path: Path) -> None:
    """80 of 100 MiB are released. The window in which that happened had all of it, and later windows did not."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(50, 1, rss=100 * MIB, minor=100 * 256, stack=8192)
    assert watched.high() >= 100 * MIB
    watched.proc.process(50, 1, rss=20 * MIB, minor=100 * 256, user=0.1, stack=8192)
    assert watched.high() >= 100 * MIB
    assert 20 * MIB <= watched.high() < 25 * MIB
    assert watched.tree.resting


def test_what_a_child_has_of_a_parent_that_has_ended_was_not_filled_from_outside(tmp_path: Path) -> None:
    """No tick saw the parent with its 40 MiB: wait4 reports their page faults, and the child has the pages."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(60, os.getpid(), rss=40 * MIB, stack=8192, minor=5)
    watched.proc.last_pid(101)
    watched.tree.note_exit(_end(max_rss=41 * MIB, faults=40 * 256))
    assert 40 * MIB <= watched.high() <= 43 * MIB


@pytest.mark.parametrize(
    ("event", "beside"),
    [
        ("nothing", 40 + 16),
        ("thread", None),
        ("child", None),
        ("exec", None),
        ("brief thread", None),
        ("uncounted", None),
        ("pswpout 7", None),
        ("thp_deferred_split_page 3", 40 + 16 + 3 * 2048),
    ],
)
def test_the_end_of_a_process_that_was_the_whole_tree_states_what_was_beside_it(
    tmp_path: Path, event: str, beside: int | None
) -> None:
    found: list[ProcessRecord] = []
    watched = Watched(tmp_path, on_process=found.append)
    process = {"rss": MIB, "stack": 8192, "page_tables": 40 << 10}
    watched.proc.process(50, 1, **process)
    watched.high()
    if event == "thread":
        watched.proc.process(50, 1, **process, minor=11, threads=2)
    if event == "child":
        watched.proc.process(101, 50, rss=MIB, stack=8192)
        watched.proc.last_pid(101)
    if event == "exec":
        watched.proc.process(50, 1, **{**process, "stack": 12288}, minor=11)
    if event.startswith(("psw", "thp")):
        (watched.proc.path / "vmstat").write_text(f"nr_free_pages 1\nnr_shmem 0\n{event}\n")
    watched.high()
    watched.proc.process(50, 1, **process, minor=12)
    first_thread_ms = {"brief thread": 11.97, "uncounted": None}.get(event, 12.001)
    watched.tree.note_exit(_end(max_rss=41 * MIB, faults=40 * 256, first_thread_ms=first_thread_ms))
    watched.high()
    (record,) = [record for record in found if record.event is ProcessEvent.EXIT and record.pid == 50]
    assert record.beside == (None if beside is None else beside << 10)
    assert record.max_rss_error == (None if beside is None else rss_error())


def test_memory_that_came_and_went_between_two_samples_counts_whatever_the_watermark_says(
    tmp_path: Path,
) -> None:
    """40 MiB come and go, 1 MiB at a time: a child may have kept them. They are not in the next window."""
    watched = Watched(tmp_path)
    watched.high()
    watched.high()
    watched.proc.process(50, 1, rss=MIB, minor=10 + 40 * 256, stack=8192)
    assert 40 * MIB <= watched.high() <= 43 * MIB
    watched.proc.process(50, 1, rss=MIB, minor=11 + 40 * 256, stack=8192)
    assert watched.high() < 2 * MIB


def test_the_tree_has_no_more_than_its_processes_hold_together(tmp_path: Path) -> None:
    """Two programs of 30 MiB; one of them frees 20 MiB, and that is less than all page faults so far."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(101, 50, rss=30 * MIB, minor=30 * 256, stack=16384)
    watched.proc.process(102, 50, rss=30 * MIB, minor=30 * 256, stack=12288)
    watched.proc.last_pid(102)
    assert 60 * MIB <= watched.high() <= 64 * MIB
    watched.proc.process(101, 50, rss=10 * MIB, minor=31 * 256, stack=16384)
    watched.high()
    watched.proc.process(101, 50, rss=10 * MIB, minor=32 * 256, stack=16384)
    assert 41 * MIB <= watched.high() <= 44 * MIB


@pytest.mark.parametrize(
    ("state", "held", "most"), [("S", 10, 30), ("R", 10, 50), ("D", 10, 50), ("R", 0, 50), ("S", 0, 20)]
)
def test_memory_that_is_being_released_counts_until_the_next_sample(
    tmp_path: Path, state: str, held: int, most: int
) -> None:
    """A program maps 30 MiB and then fewer; the kernel frees pages after it lowers the resident size.

    Another program gains 20 MiB meanwhile. The two have `most` MiB at most, and 1 MiB for the first process.
    """
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(101, 50, rss=30 * MIB, minor=30 * 256, stack=16384)
    watched.proc.last_pid(101)
    watched.high()
    stack = 16384 if held else 0
    watched.proc.process(101, 50, rss=held * MIB, minor=30 * 256, stack=stack, state=state)
    watched.high()
    watched.proc.process(50, 1, rss=21 * MIB, minor=10 + 20 * 256, stack=8192)
    assert (most + 1) * MIB <= watched.high() <= (most + 4) * MIB
    watched.proc.process(50, 1, rss=22 * MIB, minor=11 + 21 * 256, stack=8192)
    assert (held + 22) * MIB <= watched.high() <= (held + 26) * MIB


@pytest.mark.parametrize(("listed", "most"), [(0, 30), (5 * 256, 35), (90 * 256, 50)])
def test_memory_that_is_being_released_is_no_more_than_the_machine_has_not_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int, most: int
) -> None:
    """Pages in the kernel's lists that no process or file has are those that are being freed."""
    names = (
        "nr_inactive_anon nr_active_file nr_inactive_file nr_unevictable nr_isolated_anon nr_isolated_file"
    )
    counts = "\n".join(f"{name} 1000" for name in names.split())
    monkeypatch.setattr(allocations, "vmstat_error", lambda pages, cpus: 0)
    monkeypatch.setattr(fault_bounds, "_LATE", math.inf)  # of a loaded machine
    watched = Watched(tmp_path)
    vmstat = watched.proc.path / "vmstat"

    def on_lists(pages: int) -> None:
        vmstat.write_text(
            f"nr_free_pages 1\nnr_shmem 0\nnr_active_anon {pages}\n{counts}\n"
            "nr_anon_pages 4000\nnr_file_pages 2000\n"
        )

    on_lists(0)
    watched.high()
    watched.proc.process(101, 50, rss=30 * MIB, minor=30 * 256, stack=16384)
    watched.proc.last_pid(101)
    watched.high()
    watched.proc.process(101, 50, rss=10 * MIB, minor=30 * 256, stack=16384, state="R")
    on_lists(listed)
    watched.high()
    watched.proc.process(50, 1, rss=21 * MIB, minor=10 + 20 * 256, stack=8192)
    assert (most + 1) * MIB <= watched.high() <= (most + 4) * MIB


@pytest.mark.parametrize("seen_before", [False, True])
def test_what_a_process_gained_that_ends_while_the_tick_is_taken_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_before: bool
) -> None:
    """Its page faults are read, then its parent waits for it, and all are read again: no process inherits them unnoticed."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    watched = Watched(tmp_path)
    watched.high()
    if seen_before:
        watched.proc.process(101, 50, rss=MIB, minor=10, stack=8192)
        watched.proc.last_pid(101)
        watched.high()
    watched.high()
    watched.proc.process(101, 50, rss=MIB, minor=10 + 40 * 256, stack=8192)
    watched.proc.process(103, 50, rss=MIB, minor=5, stack=8192)
    watched.proc.last_pid(103)
    looked_at = watched.tree._tree._look_at_group

    def ends_meanwhile(member: Member, now: float) -> None:
        looked_at(member, now)
        if member.pid == 103:
            watched.proc.remove(101, 50)
            watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=10 + 40 * 256)

    monkeypatch.setattr(watched.tree._tree, "_look_at_group", ends_meanwhile)
    assert 40 * MIB <= max(watched.high(), watched.high()) <= 43 * MIB


@pytest.mark.parametrize("samples_without_report", [1, 2])
def test_a_late_report_of_an_end_counts_in_the_windows_before_it(
    tmp_path: Path, samples_without_report: int
) -> None:
    """A child had 60 MiB, gained 40 and ended. Beside neighbours that fork, an unknown window would count all of them."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(101, os.getpid(), rss=60 * MIB, minor=60 * 256, stack=16384)
    watched.proc.last_pid(101)
    watched.high()
    watched.high()
    watched.proc.process(50, 1, rss=6 * MIB, minor=10 + 5 * 256, stack=8192)
    watched.proc.remove(101, os.getpid())
    for _ in range(samples_without_report):
        assert 66 * MIB <= watched.high() <= 69 * MIB
    end = _end(100 * MIB, 100 * 256)
    watched.tree.note_exit(end._replace(pid=101, stat=(end.stat or b"").replace(b"50", b"101", 1)))
    watched.proc.process(50, 1, rss=6 * MIB, minor=11 + 5 * 256, stack=8192)
    assert 106 * MIB <= watched.high() <= (109 if samples_without_report == 1 else 169) * MIB
    watched.proc.process(50, 1, rss=6 * MIB, minor=12 + 5 * 256, stack=8192)
    assert watched.high() <= 9 * MIB


@pytest.mark.parametrize(
    ("zombie", "newest", "least", "most"),
    [(False, 101, 49, 52), (True, 101, 49, 52), (False, 102, 0, 3)],
    ids=["its parent reports them", "it is a zombie", "or another process had them"],
)
def test_the_estimate_has_what_a_child_gained_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zombie: bool, newest: int, least: int, most: int
) -> None:
    """A compiler has 40 MiB after 60 MiB of page faults. After 12 MiB more, it ends."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    watched = Watched(tmp_path, "memwatch.tree.memory.needed")
    watched.high()
    watched.proc.process(101, 50, rss=40 * MIB, minor=60 * 256, stack=16384)
    watched.proc.last_pid(101)
    for _ in range(3):
        watched.high()
    watched.proc.last_pid(newest)
    if zombie:
        watched.proc.process(101, 50, state="Z", rss=0, minor=72 * 256)
    else:
        watched.proc.remove(101, 50)
        watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=72 * 256)
    assert least * MIB <= watched.high() <= most * MIB


@pytest.mark.parametrize("given", [False, True])
def test_what_a_child_gained_between_its_last_tick_and_its_end_counts_whatever_pids_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    watched = Watched(tmp_path, "memwatch.tree.unobserved.faults")
    watched.high()
    watched.proc.process(101, 50, rss=MIB, minor=10, stack=8192)
    watched.proc.last_pid(101)
    for _ in range(3):
        watched.high()
    watched.proc.remove(101, 50)
    watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=10 + 40 * 256)
    if given:
        watched.proc.last_pid(102)
    assert watched.high() == 40 * 256


@pytest.mark.parametrize(("known", "most"), [(True, 109), (False, 60)])
def test_a_worker_has_nothing_of_what_its_siblings_gained(tmp_path: Path, known: bool, most: int) -> None:
    """One has 60 MiB by 60 MiB of page faults; its sibling 50, and hardly any: these were filled by userfaultfd.

    A process with an unknown parent could have them from any other.
    """
    watched = Watched(tmp_path)
    watched.high()
    watched.high()
    watched.proc.process(101, 50, rss=60 * MIB, minor=60 * 256, stack=8192)
    watched.proc.process(102, 50 if known else os.getpid(), rss=50 * MIB, minor=10, stack=8192)
    watched.proc.last_pid(102)
    assert most * MIB <= watched.high() <= (most + 4) * MIB


@pytest.mark.parametrize(
    ("given", "high"),
    [
        # the pids are all known: the reported one has ended since the last tick
        ([], 2),
        # one was given while that tick was taken: its process may have ended before the tick was over
        ([101], 62),
    ],
)
def test_what_is_reported_of_an_unseen_process_may_have_been_before_the_last_tick_was_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[int], high: int
) -> None:
    """60 MiB at the last tick, given back since; then an unseen process is reported to have had 40 MiB."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(50, 1, rss=60 * MIB, minor=10 + 60 * 256, stack=8192)
    looked, forks = watched.tree._read_watermarks, watched.tree._tree.forks

    def meanwhile(*, all_of_them: bool) -> None:
        looked(all_of_them=all_of_them)
        for pid in given:
            watched.proc.last_pid(pid)

    monkeypatch.setattr(watched.tree, "_read_watermarks", meanwhile)
    assert 60 * MIB <= watched.high() <= 63 * MIB
    monkeypatch.setattr(watched.tree, "_read_watermarks", looked)
    assert forks.read() == (101 if given else 100)
    # the window in which it gives back is not the one that is asked about
    watched.proc.process(50, 1, rss=MIB, minor=11 + 60 * 256, stack=8192)
    if not given:
        watched.high()
        watched.proc.last_pid(101)
    watched.proc.process(50, 1, rss=MIB, minor=12 + 60 * 256, stack=8192, child_minor=40 * 256)
    before = 60 * MIB if given else 0
    assert max(before, high * MIB - MIB) <= watched.high() <= (high + 1) * MIB


def test_what_one_leaves_that_ends_while_the_tick_is_taken_adds_to_what_was_reported_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child was reported at the tick, another one after it, with their parent: they may have been there at once."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(101, 50, rss=MIB, minor=10, stack=8192)
    watched.proc.last_pid(101)
    watched.high()
    watched.high()
    watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=24 * 256)
    watched.proc.process(101, 50, rss=MIB, minor=11, stack=8192)
    watched.proc.last_pid(102)
    looked = watched.tree._read_watermarks

    def ends_meanwhile(*, all_of_them: bool) -> None:
        looked(all_of_them=all_of_them)
        watched.proc.remove(101, 50)

    monkeypatch.setattr(watched.tree, "_read_watermarks", ends_meanwhile)
    watched.high()
    monkeypatch.setattr(watched.tree, "_read_watermarks", looked)
    watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=(24 + 30) * 256 + 11)
    # the 30 MiB that are reported now are not in it: they count besides
    assert 24 * MIB <= watched.high() <= 27 * MIB


def test_a_child_that_comes_and_goes_while_the_tick_is_taken_may_keep_what_its_parent_gave_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    for _ in range(3):
        watched.high()
    watched.proc.process(50, 1, rss=MIB, minor=10 + 40 * 256, stack=8192)
    looked = watched.tree._read_watermarks

    def meanwhile(*, all_of_them: bool) -> None:
        looked(all_of_them=all_of_them)
        watched.proc.process(50, 1, rss=MIB, minor=10 + 40 * 256, stack=8192, child_minor=5)
        watched.proc.last_pid(101)

    monkeypatch.setattr(watched.tree, "_read_watermarks", meanwhile)
    assert 40 * MIB <= watched.high() <= 43 * MIB


def given_back(path: Path) -> Watched:
    """A tree whose process gives back 60 MiB before the next sample."""
    watched = Watched(path)
    watched.high()
    watched.proc.process(50, 1, rss=60 * MIB, minor=10 + 60 * 256, stack=8192)
    watched.high()
    watched.proc.process(50, 1, rss=MIB, minor=11 + 60 * 256, stack=8192)
    return watched


@pytest.mark.parametrize(
    ("born", "pids", "most"),
    [
        # of the 60 MiB only the child can have some; 5 MiB and the errors of two processes
        ({"rss": 5 * MIB}, 1, 9),
        ({"rss": 5 * MIB}, 1000, 9),
        (None, 1000, 2),
        # it may still be releasing pages
        ({"rss": 5 * MIB, "state": "R"}, 1, 63),
        # its other threads have its memory
        ({"rss": 0, "state": "Z", "threads": 2}, 1, 61),
    ],
)
def test_a_child_born_while_the_tick_is_taken_has_what_it_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, born: dict[str, Any] | None, pids: int, most: int
) -> None:
    """60 MiB are given back at a tick, and a child may be born before its memory is read: then it may have a part."""
    watched = given_back(tmp_path)
    looked = watched.tree._read_watermarks

    def meanwhile(*, all_of_them: bool) -> None:
        looked(all_of_them=all_of_them)
        if born is not None:
            watched.proc.process(101, 50, minor=20, stack=8192, **born)
        watched.proc.last_pid(100 + pids)

    monkeypatch.setattr(watched.tree, "_read_watermarks", meanwhile)
    assert 60 * MIB <= watched.high() <= 63 * MIB
    monkeypatch.setattr(watched.tree, "_read_watermarks", looked)
    watched.proc.process(50, 1, rss=MIB, minor=12 + 60 * 256, stack=8192)
    assert (most - 1) * MIB <= watched.high() <= (most + 2) * MIB


def test_births_that_never_pause_leave_what_was_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = given_back(tmp_path)
    discovery, newest = watched.tree._tree.discovery, [101]

    def births(pids: Iterable[int], members: Mapping[int, Member], add: Callable[[int], bool]) -> list[int]:
        newest[0] += 1
        watched.proc.last_pid(newest[0])
        return []

    monkeypatch.setattr(discovery, "probe", births)
    watched.proc.last_pid(newest[0])
    watched.high()
    monkeypatch.undo()
    watched.proc.process(50, 1, rss=MIB, minor=12 + 60 * 256, stack=8192)
    assert 60 * MIB <= watched.high() <= 63 * MIB


def test_a_long_line_of_descendants_is_found_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.high()
    line = range(101, 101 + 1200)
    for pid in line:
        watched.proc.process(pid, 50 if pid == 101 else pid - 1, rss=MIB, stack=8192)
    watched.proc.last_pid(line[-1])
    assert watched.high() >= MIB


@contextmanager
def reading_child(watched: Watched) -> Iterator[None]:
    """The tree has a child, 101, of 50 MiB. A thread walks its page tables as long as this lasts."""
    watched.high()
    watched.proc.process(101, 50, rss=50 * MIB, minor=50 * 256, stack=8192)
    watched.proc.last_pid(101)
    watched.high()
    os.mkfifo(watched.proc.path / "101/smaps")
    reading = threading.Thread(target=read_walking, args=(str(watched.proc.path), 101, "smaps"))
    reading.start()
    with (watched.proc.path / "101/smaps").open("wb"):
        yield
    reading.join()


def test_a_process_that_we_read_keeps_its_memory_until_the_reading_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk of page tables that waited for a processor: 100 MiB were charged for two children of 50, one after the other."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    watched = Watched(tmp_path)
    with reading_child(watched):
        watched.proc.process(101, 50, state="Z", rss=0, minor=50 * 256, stack=0)
        watched.high()
        watched.proc.process(102, 50, rss=50 * MIB, minor=50 * 256, stack=8192)
        watched.proc.last_pid(102)
        assert watched.high() >= 100 * MIB
    watched.proc.remove(101, 50)
    watched.proc.process(50, 1, rss=MIB, stack=8192, child_minor=50 * 256)
    watched.proc.process(102, 50, rss=50 * MIB, minor=50 * 256 + 1, stack=8192)
    watched.high()
    watched.proc.process(102, 50, rss=50 * MIB, minor=50 * 256 + 2, stack=8192)
    assert watched.high() <= 54 * MIB


@pytest.mark.parametrize("waited_for_by_us", [False, True])
def test_a_process_that_ends_while_we_read_it_has_ended_when_the_reading_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_for_by_us: bool
) -> None:
    """An operation that began in between needed 47.9 MiB, of which an ended process had 40: it was said to need at most 14.7."""
    monkeypatch.setattr(Descriptors, "__init__", lambda self, most=None: setattr(self, "free", 0))
    ends: list[float] = []
    watched = Watched(
        tmp_path,
        on_process=lambda record: ends.append(record.time) if record.event is ProcessEvent.EXIT else None,
    )
    watched.now = time.monotonic()
    with reading_child(watched):
        stat = (watched.proc.path / "101/stat").read_bytes()
        watched.proc.remove(101, 50)
        if waited_for_by_us:
            end = _end(50 << 20, 50 * 256)._replace(pid=101, time=watched.now, main=False, stat=stat)
            watched.tree.note_exit(end)
        sampling = threading.Thread(target=watched.high)
        sampling.start()
        sampling.join(0.3)
        assert ends == []
        over = time.monotonic()
    sampling.join()
    assert ends[0] >= over


@pytest.mark.parametrize("bound", ["memwatch.tree.memory.needed.high", "memwatch.tree.memory.needed"])
@pytest.mark.parametrize(
    ("freed", "partly_free", "least"),
    [
        # An allocator gave back a half of each of 50 huge pages: the kernel keeps the whole pages.
        (50, "50", 100),
        # An older kernel counts only the events.
        (50, None, 100),
        # The kernel has split them since.
        (50, "0", 51),
        (0, "50", 51),
    ],
)
def test_a_partly_freed_huge_page_stays_charged(
    tmp_path: Path, freed: int, partly_free: str | None, least: int, bound: str
) -> None:
    watched = Watched(tmp_path, bound)
    stats = tmp_path / "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/stats"
    stats.mkdir(parents=True)
    if partly_free is not None:
        (stats / "nr_anon_partially_mapped").write_text(f"{partly_free}\n")
    watched.high()

    def vmstat(freed: int) -> None:
        lines = (
            "nr_free_pages 1",
            "nr_shmem 0",
            "thp_fault_alloc 50",
            f"thp_deferred_split_page {freed}",
            "",
        )
        (watched.proc.path / "vmstat").write_text("\n".join(lines))

    vmstat(0)
    watched.proc.process(50, 1, rss=100 * MIB, minor=10 + 50, stack=8192)
    watched.high()
    vmstat(freed)
    watched.proc.process(50, 1, rss=50 * MIB, minor=11 + 50, stack=8192)
    watched.high()
    watched.proc.process(50, 1, rss=51 * MIB, minor=11 + 50 + 256, stack=8192)
    assert least * MIB <= watched.high() <= (least + 4) * MIB


@pytest.mark.parametrize(("faults", "left"), [(20 * 256, 0), (20, 18)])
def test_huge_pages_of_other_programs_are_not_in_the_estimate(tmp_path: Path, faults: int, left: int) -> None:
    """`sha256sum` needed 0.7 MiB beside a test with huge pages; the best estimate was 11.7."""
    watched = Watched(tmp_path, "memwatch.tree.memory.needed")
    watched.high()
    lines = "nr_free_pages 1\nnr_shmem 0\nthp_fault_alloc 50\n"
    (watched.proc.path / "vmstat").write_text(lines)
    watched.proc.process(50, 1, rss=20 * MIB, minor=10 + faults, stack=8192)
    watched.high()
    (watched.proc.path / "vmstat").write_text(lines + "thp_deferred_split_page 50\n")
    watched.proc.process(50, 1, rss=2 * MIB, minor=11 + faults, stack=8192)
    assert (2 + left) * MIB <= watched.high() <= (3 + left) * MIB


def test_huge_pages_that_come_while_the_tick_is_taken_count_in_the_next_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is read, then it takes 20 huge pages, and then the machine's count of huge pages is read."""
    watched = Watched(tmp_path)
    watched.high()
    watched.proc.process(50, 1, rss=MIB, minor=11, stack=8192)
    read = MemoryScan.read

    def then_huge(*words: Any) -> Any:
        found = read(*words)
        (watched.proc.path / "vmstat").write_text("nr_free_pages 1\nnr_shmem 0\nthp_fault_alloc 20\n")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(MemoryScan, "read", then_huge)
        watched.high()
    watched.proc.process(50, 1, rss=MIB, minor=11 + 20, stack=8192)
    assert 41 * MIB <= watched.high() <= 43 * MIB
    watched.proc.process(50, 1, rss=MIB, minor=12 + 20, stack=8192)
    assert watched.high() <= 2 * MIB


@pytest.mark.parametrize("seen", [True, False])
def test_huge_pages_of_a_process_that_is_reported_a_tick_late_count_with_its_faults(
    tmp_path: Path, seen: bool
) -> None:
    """It came and went before a tick that found no sign of it; a neighbour's later huge pages do not count."""
    watched = Watched(tmp_path)
    if seen:
        watched.high()
        watched.proc.process(50, 1, rss=MIB, minor=11, stack=8192)
    else:
        watched.proc.remove(50, 1)
    vmstat = watched.proc.path / "vmstat"
    vmstat.write_text("nr_free_pages 1\nnr_shmem 0\nthp_fault_alloc 20\n")
    watched.high()
    if seen:
        watched.proc.process(50, 1, rss=MIB, minor=12, child_minor=20, stack=8192)
    else:
        watched.tree.note_exit(_end(max_rss=41 * MIB, faults=20))
    assert 40 * MIB <= watched.high() <= 44 * MIB
    if seen:
        vmstat.write_text("nr_free_pages 1\nnr_shmem 0\nthp_fault_alloc 40\n")
        watched.proc.process(50, 1, rss=MIB, minor=13, child_minor=20, stack=8192)
        assert watched.high() <= 4 * MIB


@pytest.mark.parametrize(("written", "estimate"), [(152, 151), (0, 1)])
def test_the_estimate_has_files_in_memory_that_the_tree_wrote(
    tmp_path: Path, written: int, estimate: int
) -> None:
    watched = Watched(tmp_path, "memwatch.tree.memory.needed")
    watched.high()
    (watched.proc.path / "vmstat").write_text(f"nr_free_pages 1\nnr_shmem {150 * 256}\n")
    watched.proc.process(50, 1, rss=MIB, minor=11, stack=8192, io=(0, written * MIB, 0, 0))
    assert estimate * MIB <= watched.high() <= (estimate + 1) * MIB


@pytest.mark.parametrize(("mapped", "written", "noted"), [(4, 0, True), (4, 149, False), (0, 0, False)])
def test_files_in_memory_without_write_calls_are_noted_once(
    tmp_path: Path, mapped: int, written: int, noted: bool
) -> None:
    """stress-ng --dev-shm takes 500 MiB by fallocate; at samples there were at most 295, which was the upper bound."""
    records: list[ProcessRecord] = []
    watched = Watched(tmp_path, on_process=records.append)
    watched.high()
    for rise in (150, 300):
        (watched.proc.path / "vmstat").write_text(f"nr_free_pages 1\nnr_shmem {rise * 256}\n")
        io = (0, written * MIB * rise // 150, 0, 0)
        watched.proc.process(50, 1, rss=MIB, minor=rise, stack=8192, io=io)
        status = watched.proc.path / "50/status"
        status.write_text(status.read_text().replace("RssShmem:\t0 kB", f"RssShmem:\t{mapped} kB"))
        watched.high()
    assert [record.note for record in records].count(ProcessNote.UNWRITTEN_FILES) == noted


class Pool:
    """A parent with 50 MiB, and workers forked from it."""

    def __init__(self, path: Path) -> None:
        self.watched = Watched(path, "memwatch.tree.memory.needed.low")
        self._pids = {50}
        self.parent(50)
        self.watched.high()

    def parent(self, mib: int) -> None:
        """The parent has so much."""
        self.watched.proc.process(50, 1, rss=mib * MIB, minor=10 + 256 * mib, stack=8192)

    def worker(self, pid: int, mib: int) -> None:
        """A worker has so much; it is born where it was not there."""
        self.watched.proc.process(pid, 50, rss=mib * MIB, minor=5 + 256 * mib, stack=8192)
        self.watched.proc.last_pid(pid)
        self._pids.add(pid)

    def low(self) -> float:
        """MiB that were certainly there at the next tick, without the kernel's stacks."""
        return (self.watched.high() - len(self._pids) * KERNEL_STACK) / MIB


@pytest.mark.parametrize(
    ("order", "swapped", "low"),
    [
        # the kernel says that each has a separate address space
        (1, 0, 90),
        # they run in one: clone(CLONE_VM)
        (0, 0, 70),
        # the kernel does not say
        (-1, 0, 70),
        # pages of the parent may have come back from swap
        (1, 1, 70),
    ],
)
def test_what_workers_gain_after_their_birth_is_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: int, swapped: int, low: int
) -> None:
    monkeypatch.setattr(address_spaces, "compare", lambda _pid, _other: order)
    pool = Pool(tmp_path)
    pool.worker(101, 50)
    pool.worker(102, 50)
    assert 49 <= pool.low() <= 50
    (pool.watched.proc.path / "vmstat").write_text(f"nr_free_pages 1\nnr_shmem 0\npswpout {swapped}\n")
    pool.worker(101, 70)
    pool.worker(102, 70)
    assert low - 1 <= pool.low() <= low


def test_what_a_worker_has_of_a_page_that_its_parent_gained_before_its_birth_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent has given its 30 MiB back since; each worker has them, and they are the same."""
    monkeypatch.setattr(address_spaces, "compare", lambda _pid, _other: 1)
    pool = Pool(tmp_path)
    pool.worker(101, 50)
    pool.low()
    pool.parent(80)
    pool.low()
    pool.worker(102, 80)
    pool.worker(103, 80)
    pool.parent(50)
    assert 79 <= pool.low() <= 80
    assert 79 <= pool.low() <= 80


def test_the_largest_has_nothing_of_what_its_forebear_gained_since_its_birth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent read 50 MiB at the least before the worker was born: of its 90 the worker may have 40."""
    monkeypatch.setattr(address_spaces, "compare", lambda _pid, _other: 1)
    pool = Pool(tmp_path)
    pool.parent(90)
    pool.low()
    pool.worker(101, 90)
    pool.low()
    pool.worker(101, 100)
    assert 99 <= pool.low() <= 100
    pool.parent(100)
    assert 109 <= pool.low() <= 110


@pytest.mark.parametrize("bound", ["low", "high", ""])
def test_page_tables_and_kernel_stacks_are_memory_needed(tmp_path: Path, bound: str) -> None:
    watched = Watched(tmp_path, f"memwatch.tree.memory.needed.{bound}".removesuffix("."))
    watched.high()
    watched.proc.process(
        50, 1, rss=MIB, minor=10 + 256, stack=8192, page_tables=128 * MIB, threads=2000, virtual=1 << 38
    )
    needed = MIB + 128 * MIB + 2000 * KERNEL_STACK
    # A thread may be in the middle of a page fault.
    uncertain = 2000 * 4096
    # The estimate includes the kernel's structures, which no user can read.
    tasks = 0 if bound else likely_of_tasks(1, 2000)
    assert needed + tasks - MIB <= watched.high() <= needed + tasks + uncertain + 2 * MIB


def test_freed_page_tables_count_until_the_next_sample(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.proc.process(50, 1, rss=MIB, stack=8192, page_tables=64 * MIB)
    watched.high()
    watched.proc.process(50, 1, rss=MIB, stack=8192, minor=12)
    assert watched.high() >= 65 * MIB
    watched.proc.process(50, 1, rss=MIB, stack=8192, minor=14)
    assert watched.high() <= 3 * MIB


def test_a_process_that_we_join_has_its_memory_in_the_first_window(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    (proc.path / "vmstat").write_text("nr_free_pages 1\nnr_shmem 0\n")
    (tmp_path / "sys").mkdir()
    proc.process(50, 1, rss=90 * MIB, minor=90 * 256, stack=8192)
    tree = ProcessTree(Context(50, 0.1, proc=proc.path, sys=tmp_path / "sys", adopt=False))
    _trees.append(tree)
    values = dict(zip((column.metric for column in tree.columns), tree.read(1000.0), strict=True))
    low, high = (values[f"memwatch.tree.memory.needed.{name}"] for name in ("low", "high"))
    assert isinstance(low, int)
    assert isinstance(high, int)
    assert 90 * MIB <= low <= high <= 92 * MIB


def test_the_estimate_of_another_users_process_is_its_private_memory(tmp_path: Path) -> None:
    """The kernel hides its stack address, so its bounds are those of an unidentified address space."""
    proc = ProcTree(tmp_path / "proc")
    (proc.path / "vmstat").write_text("nr_free_pages 1\nnr_shmem 0\n")
    (tmp_path / "sys").mkdir()
    proc.process(50, 1, rss=90 * MIB, minor=95 * 256, stack=0, io=None)
    tree = ProcessTree(Context(50, 0.1, proc=proc.path, sys=tmp_path / "sys", adopt=False))
    _trees.append(tree)
    for now in (1000.0, 1000.1):
        values = dict(zip((column.metric for column in tree.columns), tree.read(now), strict=True))
        estimate = values["memwatch.tree.memory.needed"]
        assert isinstance(estimate, int)
        assert 90 * MIB <= estimate <= 91 * MIB


@pytest.mark.parametrize("shared", [0, 7])
def test_counts_that_grew_while_samples_were_repeated_are_all_found(tmp_path: Path, shared: int) -> None:
    """Only shared memory of the machine, which may fall, ends the repetition."""
    found = []
    for repeated in (False, True):
        folder = tmp_path / str(repeated)
        folder.mkdir()
        watched = Watched(folder)
        vmstat, bounds = watched.proc.path / "vmstat", watched.tree._tree.bounds
        assert bounds is not None
        bounds._resting = True
        for now in range(4):
            text = (
                f"nr_free_pages 1\nnr_shmem {shared}\npgalloc_normal {50 * now}\nallocstall_normal 1\n"
                f"thp_fault_alloc {2 * now}\nthp_collapse_alloc {now}\npswpout {now}\n"
            )
            vmstat.write_text(text)
            if not repeated or now in {0, 3}:
                assert bounds.open(1001.0 + now, at_once=False)
                files = bounds.files_at_rest()
                assert files is not None
                assert [file.parts for file in files] == [(f"\nnr_shmem {shared}\n".encode(),)]
                assert files[0].next == pytest.approx(1001.09 + now)
            else:
                bounds.note_repeated(text.encode())
        machine = bounds._machine
        found.append(
            (bounds._huge.so_far, bounds._huge.by_faults, bounds._huge.since_scan, machine.swaps,
             machine.collapses, machine.shared_rise, machine.pages_of_window(), machine.partly_freed())
        )  # fmt: skip
    assert found[0] == found[1]
    assert found[0][6] == 50

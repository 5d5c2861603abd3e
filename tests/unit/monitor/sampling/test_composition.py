"""When the kinds of memory are read, and of which processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.monitor.sampling import composition
from otel_memwatch.monitor.sampling.composition import Composition
from otel_memwatch.record.made_of import MadeOf, MemoryPart
from otel_memwatch.runtime.kernel import KERNEL_STACK, PAGE_SIZE

MIB = 1 << 20


class Tree:
    """Processes on a /proc of files, and the readings of them."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.found: list[MadeOf] = []
        self.pids: list[int] = []
        self.composition = Composition(self.found.append, 0, str(proc))

    def add(self, pid: int, mib: int, share: int | None = None, path: str = "[heap]") -> None:
        """Add a process with one mapping, or replace it."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "statm").write_text(f"0 {mib * MIB // PAGE_SIZE} 0 0 0 0 0\n")
        (self.proc / str(pid) / "status").write_text("Name:\ta\nVmPTE:\t100 kB\nThreads:\t3\n")
        part = mib if share is None else share
        (self.proc / str(pid) / "smaps").write_text(
            f"55a0-55b0 rw-p 00000000 00:00 0 {path}\nRss: {mib * 1024} kB\nPss: {part * 1024} kB\n"
            f"Anonymous: {mib * 1024 if path == '[heap]' else 0} kB\n"
        )
        if pid not in self.pids:
            self.pids.append(pid)

    def note(self, level: int, now: float) -> None:
        """Give a sample, and wait for the reading that it may have begun."""
        self.composition.note(level * MIB, lambda: self.pids, now)
        self.composition.close()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(composition.time, "thread_time", lambda: 0.0)
    return Tree(tmp_path)


def _times(tree: Tree) -> list[float]:
    return [one.time for one in tree.found]


def test_memory_is_read_once_it_is_level(tree: Tree) -> None:
    tree.add(7, 40)
    for now in (0.0, 0.1, 0.2, 0.3, 0.4, 5.0):
        tree.note(40, now)
    assert _times(tree) == [0.2]
    (only,) = tree.found
    assert only.level == 40 * MIB
    assert only.tree == (
        MemoryPart("heap", "", 40 * MIB),
        MemoryPart("page tables", "", 100 << 10),
        MemoryPart("kernel stacks", "", 3 * KERNEL_STACK),
    )
    assert (only.processes[0].pid, only.unread) == (7, 0)


def test_a_small_tree_is_never_read(tree: Tree) -> None:
    tree.add(7, 15)
    for tick in range(100):
        tree.note(15, tick / 10)
    assert tree.found == []


def test_memory_that_only_grows_is_read_each_time_it_doubles(tree: Tree) -> None:
    tree.add(7, 1000)
    for tick in range(1, 51):
        tree.note(20 * tick, tick / 2)
    assert [one.level // MIB for one in tree.found] == [80, 160, 320, 640]


def test_a_lower_level_is_no_peak(tree: Tree) -> None:
    tree.add(7, 400)
    tree.note(400, 0.0)
    tree.note(300, 10.0)
    tree.note(390, 20.0)
    assert [one.level // MIB for one in tree.found] == [400]


def test_the_largest_processes_come_first_and_shares_are_summed(tree: Tree) -> None:
    tree.add(7, 100, 60)
    tree.add(8, 200, 110)
    tree.add(9, 30, path="/usr/lib/libc.so.6")
    tree.note(330, 0.0)
    (only,) = tree.found
    assert [one.pid for one in only.processes] == [8, 7, 9]
    assert only.tree[:2] == (
        MemoryPart("heap", "", 170 * MIB),
        MemoryPart("file", "/usr/lib/libc.so.6", 30 * MIB),
    )
    assert only.processes[0].parts[0] == MemoryPart("heap", "", 200 * MIB)


def test_a_process_that_may_not_be_read_counts_as_unread(tree: Tree) -> None:
    tree.add(7, 100)
    tree.add(8, 200)
    (tree.proc / "8" / "smaps").unlink()
    tree.note(300, 0.0)
    (only,) = tree.found
    assert ([one.pid for one in only.processes], only.unread) == ([7], 1)


def test_nothing_is_kept_if_no_process_may_be_read(tree: Tree) -> None:
    tree.add(7, 100)
    (tree.proc / "7" / "smaps").write_text("")
    tree.note(100, 0.0)
    assert tree.found == []


def test_readings_stay_within_their_budget(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(value / 1000 for value in range(0, 10**6, 28))  # each reading takes 28 ms
    monkeypatch.setattr(composition.time, "thread_time", lambda: next(clock))
    tree.add(7, 40)
    tree.note(40, 0.0)
    tree.note(40, 0.2)
    tree.note(200, 1.0)
    tree.note(200, 1.3)
    assert _times(tree) == [0.2]  # the next one would exceed the budget
    tree.note(200, 60.0)
    assert _times(tree) == [0.2, 60.0]


def test_many_files_become_one_entry(tree: Tree) -> None:
    tree.add(7, 100)
    rows = "".join(
        f"55a0-55b0 r--p 00000000 00:00 0 /lib/{number}.so\nRss: {number} kB\nPss: {number} kB\nAnonymous: 0 kB\n"
        for number in range(1, 101)
    )
    (tree.proc / "7" / "smaps").write_text(rows)
    tree.note(100, 0.0)
    parts: Any = tree.found[0].tree
    named = [one for one in parts if one.name]
    assert [one.bytes >> 10 for one in named] == list(range(100, 88, -1))
    assert sum(one.bytes >> 10 for one in parts if one.kind == "file") == 5050

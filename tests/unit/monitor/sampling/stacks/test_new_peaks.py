"""Which new peaks are worth a capture, on a /proc of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.monitor.sampling.stacks import new_peaks
from otel_memwatch.monitor.sampling.stacks.new_peaks import GrowthWatch
from otel_memwatch.runtime.kernel import PAGE_SIZE

MIB = 1 << 20


class Proc:
    """A /proc with the files that the watch reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = 0

    def set(self, pid: int, mib: float, children: tuple[int, ...] = (), faults: int = 0) -> None:
        """Give a process this size."""
        task = self.path / str(pid) / "task" / str(pid)
        if not task.exists():
            task.mkdir(parents=True)
            self._last += 1
            (self.path / "loadavg").write_text(f"0 0 0 1/1 {self._last}\n")
        (task / "children").write_text(" ".join(map(str, children)))
        (task / "stat").write_text(f"{pid} (a) b) S 1 1 1 0 0 0 {faults} 0 0 0\n")
        (self.path / str(pid) / "statm").write_text(f"0 {int(mib * MIB) // PAGE_SIZE} 0 0 0 0 0\n")
        (self.path / str(pid) / "status").write_text(
            f"Name:\ta\nRssAnon:\t{int(mib * 1024)} kB\nRssShmem:\t0 kB\n"
        )

    def end(self, pid: int) -> None:
        """Remove a process."""
        import shutil

        shutil.rmtree(self.path / str(pid))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def _watch(proc: Proc) -> GrowthWatch:
    return GrowthWatch(1, None, frozenset(), str(proc.path))


def test_growth_by_a_step_is_a_new_peak(proc: Proc) -> None:
    proc.set(1, 10)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    assert (first.level, first.pid) == (10 * MIB, 1)
    watch.captured(first, 0.0)
    proc.set(1, 17)
    assert watch.poll() is None  # less than the smallest step
    proc.set(1, 200)
    second = watch.poll()
    assert second is not None
    watch.captured(second, 0.0)
    proc.set(1, 209)
    assert watch.poll() is None  # 4.5 %
    proc.set(1, 211)
    assert watch.poll() is not None
    assert watch.highest == 211 * MIB


def test_a_lower_level_is_no_new_peak(proc: Proc) -> None:
    proc.set(1, 300)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    watch.captured(first, 0.0)
    proc.set(1, 20)
    assert watch.poll() is None
    proc.set(1, 290)
    assert watch.poll() is None


def test_the_process_that_grew_most_is_named(proc: Proc) -> None:
    proc.set(1, 100, children=(2, 3))
    proc.set(2, 1)
    proc.set(3, 1)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    watch.captured(first, 0.0)
    proc.set(2, 20)
    proc.set(3, 60)
    second = watch.poll()
    assert second is not None
    assert second.pid == 3


def test_pages_inherited_by_a_fork_count_once(proc: Proc) -> None:
    proc.set(1, 100)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    watch.captured(first, 0.0)
    proc.set(1, 100, children=(2, 3))
    proc.set(2, 100)
    proc.set(3, 99)
    assert watch.poll() is None
    proc.set(3, 120)
    grown = watch.poll()
    assert grown is not None
    assert (grown.pid, grown.level) == (3, 121 * MIB)


def test_an_ended_process_is_forgotten(proc: Proc) -> None:
    proc.set(1, 10, children=(2,))
    proc.set(2, 90)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    assert first.level == (10 + 80) * MIB
    proc.end(2)
    proc.set(1, 60)
    again = watch.poll()
    assert again is not None
    assert again.level == 60 * MIB


def test_orphans_of_the_adopter_belong_to_the_tree_but_not_its_helpers(proc: Proc) -> None:
    proc.set(9, 500, children=(1, 5, 6))
    proc.set(1, 10)
    proc.set(5, 40)
    proc.set(6, 400)
    watch = GrowthWatch(1, 9, frozenset({6}), str(proc.path))
    found = watch.poll()
    assert found is not None
    assert found.level == 50 * MIB


def test_captures_stay_within_their_budget(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(new_peaks.time, "monotonic", lambda: now)
    proc.set(1, 10)
    watch = _watch(proc)
    first = watch.poll()
    assert first is not None
    watch.captured(first, new_peaks.ADVANCE * 0.6)
    proc.set(1, 100)
    second = watch.poll()
    assert second is not None
    watch.captured(second, 0.0)
    proc.set(1, 115)
    assert watch.poll() is None  # steps are wider when most of the budget is used
    proc.set(1, 121)
    third = watch.poll()
    assert third is not None
    watch.spend(new_peaks.ADVANCE)
    assert watch.poll() is None
    now += 2 * new_peaks.ADVANCE / new_peaks.SHARE
    assert watch.poll() is not None


def test_faults_are_read_by_thread(proc: Proc) -> None:
    proc.set(1, 10, faults=42)
    assert _watch(proc).faults(1) == {1: 42}
    assert _watch(proc).faults(77) == {}

"""Captures that are kept, and failures that become one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.monitor.sampling.stacks import means, tools, worker
from otel_memwatch.monitor.sampling.stacks.new_peaks import GrowthWatch, NewPeak
from otel_memwatch.monitor.sampling.stacks.worker import Captures, thin
from otel_memwatch.record.stacks import MOST_CAPTURES, Capture, CapturedThread, StackFrame, read_stacks

MIB = 1 << 20
THREADS = [
    CapturedThread(number, "", False, None, (StackFrame(f"f{number}", "a.py", 1),)) for number in (1, 2)
]


class Watch(GrowthWatch):
    """A watch whose thread 2 has 500 page faults between two readings."""

    def __init__(self) -> None:
        super().__init__(1, None, frozenset())
        self._reads = 0

    def size(self, pid: int) -> int:
        """Return a size that grows."""
        return 10 * MIB

    def faults(self, pid: int) -> dict[int, int]:
        """Return the faults of both threads."""
        self._reads += 1
        return {1: 7, 2: 500 * self._reads}


def _capture(level: int) -> Capture:
    return Capture(float(level), level * MIB, 1, "", 0, 0, 0, 0.0, "", ())


def test_the_thread_with_most_faults_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "capture", lambda pid: ("py-spy", THREADS))
    Captures(tmp_path, 1).take(Watch(), NewPeak(50 * MIB, 1, 20 * MIB))
    (capture,) = read_stacks(tmp_path).captures
    assert [(thread.id, thread.faults) for thread in capture.threads] == [(2, 500), (1, 0)]
    assert (capture.level, capture.grown, capture.means) == (50 * MIB, 20 * MIB, "py-spy")


def test_lines_are_looked_up_when_memory_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = StackFrame("grow", "/app/prog", 0, 0x40118B)
    native_thread = CapturedThread(1, "", False, None, (frame,))
    monkeypatch.setattr(means, "capture", lambda pid: ("eu-stack", [native_thread]))
    monkeypatch.setattr(tools, "mapped_modules", lambda pid, threads: "rows")
    asked = []

    def look_up(maps: str, threads: list[CapturedThread], patience: float) -> dict[int, list[StackFrame]]:
        asked.append((maps, len(threads)))
        return {0x40118B: [StackFrame("grow", "/src/prog.c", 8)]}

    monkeypatch.setattr(tools, "find_lines", look_up)
    captures, watch = Captures(tmp_path, 1), Watch()
    for level in (50, 60):
        captures.take(watch, NewPeak(level * MIB, 1, 20 * MIB))
    assert not captures.lines_due()
    assert read_stacks(tmp_path).captures[0].threads[0].frames == (StackFrame("grow", "/app/prog", 0),)
    monkeypatch.setattr(worker, "_QUIET", -1.0)
    assert captures.lines_due()
    captures.find_lines(watch, 1.0)
    assert asked == [("rows", 2)]  # one process, one lookup
    assert not captures.lines_due()
    frames = [one.threads[0].frames for one in read_stacks(tmp_path).captures]
    assert frames == [(StackFrame("grow", "/src/prog.c", 8),)] * 2


def test_growth_until_the_end_of_the_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "capture", lambda pid: ("py-spy", THREADS))
    watch = Watch()
    sizes = iter([150 * MIB])
    monkeypatch.setattr(watch, "size", lambda pid: next(sizes, 0))  # a zombie has no memory
    Captures(tmp_path, 1).take(watch, NewPeak(150 * MIB, 1, 20 * MIB))
    (capture,) = read_stacks(tmp_path).captures
    assert (capture.before, capture.after) == (150 * MIB, 150 * MIB)


def test_thinning_keeps_the_first_and_the_last_capture() -> None:
    kept = [_capture(level) for level in (10, 20, 21, 40, 41)]
    thin(kept)
    assert [one.level // MIB for one in kept] == [10, 20, 40, 41]
    thin(kept)
    assert [one.level // MIB for one in kept] == [10, 20, 41] or [one.level // MIB for one in kept] == [
        10,
        40,
        41,
    ]


def test_growth_of_a_removed_capture_belongs_to_the_next_one_of_its_process() -> None:
    levels = ((10, 1, 10), (20, 1, 10), (21, 1, 1), (40, 2, 19), (60, 1, 20))
    kept = [_capture(level)._replace(pid=pid, grown=grown) for level, pid, grown in levels]
    thin(kept)
    assert [(one.pid, one.grown) for one in kept] == [(1, 10), (1, 10), (2, 19), (1, 21)]


def test_at_most_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "capture", lambda pid: ("py-spy", THREADS))
    captures = Captures(tmp_path, 1)
    for level in range(10, 60):
        captures.take(Watch(), NewPeak(level * MIB, 1, MIB))
    levels = [one.level // MIB for one in read_stacks(tmp_path).captures]
    assert len(levels) == MOST_CAPTURES
    assert (levels[0], levels[-1]) == (10, 59)


def test_a_refusal_is_one_sentence_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(pid: int) -> tuple[str, list[CapturedThread]]:
        asked.append(pid)
        raise means.NotPermittedError("permission denied")

    monkeypatch.setattr(means, "capture", refuse)
    monkeypatch.setattr(means, "permission", lambda: (False, "the remedy"))
    captures = Captures(tmp_path, 1)
    for _ in range(3):
        captures.take(Watch(), NewPeak(50 * MIB, 1, 20 * MIB))
    assert asked == [1]
    assert len(captures.problems) == 1
    assert "the remedy" in captures.problems[0]


def test_a_refused_child_does_not_end_the_captures_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse_others(pid: int) -> tuple[str, list[CapturedThread]]:
        asked.append(pid)
        if pid != 1:
            raise means.NotPermittedError("operation not permitted")
        return "py-spy", THREADS

    monkeypatch.setattr(means, "capture", refuse_others)
    captures, watch = Captures(tmp_path, 1), Watch()
    for pid in (7, 7, 1, 8, 1):
        captures.take(watch, NewPeak(50 * MIB, pid, 20 * MIB))
    assert asked == [7, 7, 1, 8, 1]
    assert len(captures.problems) == 1
    assert len(read_stacks(tmp_path).captures) == 2
    for pid in (9, 10, 11, 12, 1):
        captures.take(watch, NewPeak(50 * MIB, pid, 20 * MIB))
    assert asked[5:] == [9, 10, 11]  # so many refusals end it


@pytest.mark.parametrize(("failures", "reported"), [(1, False), (2, False), (3, True)])
def test_a_run_without_any_capture_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, reported: bool
) -> None:
    errors = iter(["no python here", *["it has ended"] * failures])

    def fail(pid: int) -> tuple[str, list[CapturedThread]]:
        raise means.NoStackError(next(errors))

    monkeypatch.setattr(means, "capture", fail)
    captures = Captures(tmp_path, 1)
    for _ in range(failures):
        captures.take(Watch(), NewPeak(50 * MIB, 1, 20 * MIB))
    captures.note_end()
    assert captures.problems == ["stacks could not be captured: no python here"] * reported


def test_failures_are_reported_once_and_do_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> tuple[str, list[CapturedThread]]:
        raise means.NoStackError("no python here")

    monkeypatch.setattr(means, "capture", fail)
    captures = Captures(tmp_path, 1)
    for _ in range(worker._FAILURES * 2):
        captures.take(Watch(), NewPeak(50 * MIB, 1, 20 * MIB))
    assert captures.problems == ["stacks could not be captured: no python here"]
    monkeypatch.setattr(means, "capture", lambda pid: ("py-spy", THREADS))
    captures.take(Watch(), NewPeak(50 * MIB, 1, 20 * MIB))
    assert len(read_stacks(tmp_path).captures) == 1


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    captures = Captures(tmp_path / "gone", 1)
    captures.write(0)
    captures.write(0)
    assert captures.problems == ["captured stacks could not be written: No such file or directory"]


@pytest.mark.parametrize(
    ("left", "grows", "period"),
    [
        (worker.POLL_ADVANCE, False, worker.PERIOD),  # the run begins
        (worker.POLL_ADVANCE / 2, False, 0.25),
        (worker.POLL_ADVANCE / 2, True, worker.PERIOD),
        (0.0, True, 0.25),
    ],
)
def test_polls_are_frequent_within_the_budget(left: float, grows: bool, period: float) -> None:
    assert worker._period(0.001, left, grows=grows) == pytest.approx(period)

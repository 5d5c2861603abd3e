"""A recorded run: its state, its ending, its operations and processes, from the directory alone."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from otel_memwatch.model import Certainty, Peak, ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.run import Peaks, RecordedRun, describe_end, load
from tests.support import recorded
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

RSS, MAIN = column("memwatch.tree.memory.usage"), column("process.memory.usage")
CPU = column("memwatch.tree.cpu.time", cpu__mode="user")
GROUP = tuple(
    column(f"memwatch.cgroup.memory.{name}") for name in ("usage", "file", "shmem", "kernel", "peak")
)


def seen(pid: int = PID, start: float = 0.0, **fields: object) -> ProcessRecord:
    return ProcessRecord(ProcessEvent.SEEN, STARTED + start, pid, STARTED + start, **fields)  # type: ignore[arg-type]


def ended(at: float, pid: int = PID, start: float = 0.0, **fields: object) -> ProcessRecord:
    return ProcessRecord(ProcessEvent.EXIT, STARTED + at, pid, STARTED + start, **fields)  # type: ignore[arg-type]


def opening(
    number: int, at: float, name: str, parent: int | None = None, **fields: object
) -> dict[str, object]:
    span = None if parent is None else f"s{parent}"
    return {
        "open": number, "time": at, "name": name, "trace": "t", "span": f"s{number}", "parent": span, "rss": 10 * MIB,
        "segment": 10 * MIB, **fields,
    }  # fmt: skip


def closing(number: int, at: float, peak: int, **fields: object) -> dict[str, object]:
    return {
        "close": number, "time": at, "status": "ok", "rss": 20 * MIB, "segment": peak * MIB, "peak": peak * MIB,
        "low": peak * MIB, "high": peak * MIB, "certainty": "exact", **fields,
    }  # fmt: skip


class TestEnding:
    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ((0, None, 0, None, None), "exit code 0"),
            ((3, None, None, None, None), "exit code 3"),
            ((None, signal.SIGTERM, 0, None, None), "killed by SIGTERM"),
            ((None, 63, 0, None, None), "killed by signal 63"),
            (
                (None, signal.SIGKILL, 1, 96 * MIB, 96 * MIB),
                "killed by SIGKILL: the kernel's OOM killer, at 96.0 MiB of 96.0 MiB",
            ),
            (
                (None, signal.SIGKILL, 2, None, None),
                "killed by SIGKILL: the kernel's OOM killer (2 processes killed)",
            ),
            (
                (0, None, 1, 96 * MIB, 96 * MIB),
                "exit code 0; the kernel's OOM killer killed a process of it, at 96.0 MiB of 96.0 MiB",
            ),
            (
                (None, signal.SIGTERM, 3, None, 96 * MIB),
                "killed by SIGTERM; the kernel's OOM killer killed 3 processes of it, limit 96.0 MiB",
            ),
            ((None, signal.SIGKILL, 0, 96 * MIB, 96 * MIB), "killed by SIGKILL"),
            ((None, None, 0, None, None), "ended"),
        ],
    )
    def test_words(self, arguments: tuple[int | None, ...], reason: str) -> None:
        end = describe_end(*arguments)
        assert end.reason == reason
        assert end[:3] == arguments[:3]

    def test_the_monitors_part_of_the_limit(self) -> None:
        end = describe_end(None, signal.SIGKILL, 1, 60 * MIB, 96 * MIB, monitor=36 * MIB)
        assert end.reason.endswith(
            "OOM killer, at 60.0 MiB of 96.0 MiB; the monitor used 36.0 MiB of this limit"
        )

    def test_as_written(self, tmp_path: Path) -> None:
        RunDirectory(tmp_path)
        run = load(tmp_path)
        assert (run.state, run.ending.reason, run.ending.exit_code, run.seconds) == (
            "finished",
            "exit code 0",
            0,
            1.0,
        )


class TestState:
    def running(self, path: Path, **fields: object) -> RecordedRun:
        built = RunDirectory(path, state="running", ended=None, exit=None, **fields)
        built.columns([RSS])
        built.tick(0.1, MIB)
        built.tick(0.4, MIB)
        return load(path)

    def here(self, pid: int, wall: float) -> dict[str, object]:
        return {
            "host": {"name": os.uname().nodename},
            "monitor": {"pid": pid, "mode": "wrap"},
            "started": {"wall": wall, "monotonic": STARTED},
        }

    def test_its_monitor_lives(self, tmp_path: Path) -> None:
        run = self.running(tmp_path, **self.here(os.getpid(), time.time() + 5))
        assert (run.state, run.ending.reason) == ("running", "still running")
        assert run.seconds == pytest.approx(0.4)

    def test_its_monitor_is_gone(self, tmp_path: Path) -> None:
        nobody = (1 << 22) + 1  # one more than the kernel ever gives
        run = self.running(tmp_path, **self.here(nobody, time.time() + 5))
        assert run.state == "incomplete"
        assert run.ending.reason == "unknown: the monitor died or could not write, last sample at 0.4 s"

    def test_another_process_got_its_monitors_pid(self, tmp_path: Path) -> None:
        assert self.running(tmp_path, **self.here(os.getpid(), 1_000_000_000.0)).state == "incomplete"

    def test_on_another_machine_it_runs_while_it_ticks(self, tmp_path: Path) -> None:
        assert self.running(tmp_path).state == "running"
        os.utime(tmp_path / SAMPLES_FILE, (0, 0))
        assert load(tmp_path).state == "incomplete"

    def test_operations_open_at_death(self, tmp_path: Path) -> None:
        built = RunDirectory(tmp_path, state="running", ended=None, exit=None, host={})
        built.columns([RSS, MAIN])
        for place in range(10):
            built.tick(place / 10, place * 10 * MIB, place * 10 * MIB)
        built.process(seen(rss=MIB, peak=MIB))
        built.operations([opening(1, 0.2, "Load"), opening(2, 0.3, "Compile", 1), opening(3, 0.35, "Pass", 2),
                          closing(3, 0.4, 300)])  # fmt: skip
        run = load(tmp_path)
        assert run.state == "incomplete"
        assert run.ending.reason.endswith("last sample at 0.9 s; open then: Load, Compile")
        assert [(o.operation.name, o.operation.status) for o in run.operations] == [
            ("Load", "open"), ("Compile", "open"), ("Pass", "ok"),
        ]  # fmt: skip
        for figures in run.operations[:2]:
            peak = figures.operation.peak
            assert peak is not None
            assert (peak.certainty, peak.low, peak.high) == (Certainty.INTERVAL, 300 * MIB, None)
            assert figures.end == pytest.approx(0.9)
        assert run.peaks.main is not None
        assert (run.peaks.main.low, run.peaks.main.operation) == (300 * MIB, "Pass")


def test_written_figures_are_taken_as_they_are(tmp_path: Path) -> None:
    peaks = Peaks(
        main=Peak.exact(5, 1, at=0.5, pid=PID),
        process=Peak.censored(10),
        tree=Peak.interval(5, None, operation="x"),
        gpu={"GPU-1": Peak.sampled(7, at=1.0)},
    )
    RunDirectory(
        tmp_path,
        peaks=peaks.to_json(),
        totals={"cpu_seconds": 1.5},
        quality={"ticks": 3, "achieved_hz": None},
    )
    run = load(tmp_path)
    assert run.peaks == peaks
    assert (run.totals["cpu_seconds"], run.totals["processes"]) == (1.5, None)
    assert (run.quality["ticks"], run.quality["achieved_hz"]) == (3, None)
    assert isinstance(run.quality["ticks"], int)


@pytest.mark.parametrize(
    "peaks", [{"main": 3}, {"main": {"bytes": "x"}}, {"gpu": [3]}, {"tree": {"certainty": "x"}}]
)
def test_damaged_figures_are_folded_again(tmp_path: Path, peaks: object) -> None:
    built = RunDirectory(tmp_path, peaks=peaks)
    built.process(seen(rss=MIB, peak=50 * MIB))
    built.process(ended(0.9, peak=50 * MIB, peak_bound=50 * MIB, exit_code=0))
    main = load(tmp_path).peaks.main
    assert main is not None
    assert main.bytes == 50 * MIB


def test_processes(tmp_path: Path) -> None:
    built = RunDirectory(tmp_path)
    built.process(seen(rss=MIB, command="make", argv=("make", "-j4"), ppid=4000))
    built.process(seen(5000, 0.2, rss=MIB, command="cc", ppid=PID))
    built.process(ended(0.5, 5000, 0.2, peak=7 * MIB, cpu_user=0.25, cpu_system=0.5, note="zombie"))
    built.process(seen(5000, 0.6, rss=MIB, command="ld", ppid=PID))
    built.process(ended(0.9, peak=90 * MIB, peak_bound=90 * MIB, exit_code=2, write_bytes=5))
    first, second, third = load(tmp_path).processes
    assert (first.pid, first.command, first.argv, first.ppid) == (PID, "make", ("make", "-j4"), 4000)
    assert (first.start, first.end, first.exit_code, first.write_bytes, first.read_bytes) == (
        0.0,
        0.9,
        2,
        5,
        None,
    )
    assert first.peak is not None
    assert (first.peak.bytes, first.peak.certainty) == (90 * MIB, Certainty.EXACT)
    assert (second.command, second.cpu_seconds, second.note, second.end) == ("cc", 0.75, "zombie", 0.5)
    assert second.peak is not None
    assert (second.peak.low, second.peak.high) == (7 * MIB, 90 * MIB)
    assert (third.command, third.pid, third.end) == ("ld", 5000, None)


class TestOperations:
    def built(self, path: Path, **fields: object) -> RunDirectory:
        built = RunDirectory(path, **fields)
        built.columns([RSS, CPU])
        for place in range(11):
            built.tick(place / 10, 10 * MIB, place * 0.05)
        built.process(seen(rss=10 * MIB, peak=10 * MIB))
        return built

    def test_nested_repeated_and_in_several_processes(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        built.operations(
            [
                opening(1, 0.10, "Epoch"),
                opening(2, 0.15, "Step", 1),
                closing(2, 0.25, 500, cpu_user=0.01, cpu_system=0.02, read_bytes=3),
                opening(3, 0.30, "Step", 1),
                closing(3, 0.40, 100, status="error", error="ValueError", cpu_user=0.09, cpu_system=0.0),
                closing(1, 0.60, 500),
            ]
        )
        built.process(seen(5000, 0.2, rss=MIB))
        built.operations([opening(1, 0.35, "Worker", 3, span="w1"), closing(1, 0.5, 40)], pid=5000)
        built.process(ended(0.5, 5000, 0.2, peak=40 * MIB, peak_bound=40 * MIB, exit_code=0))
        built.process(ended(1.0, peak=30 * MIB, peak_bound=30 * MIB, exit_code=0))
        run = load(tmp_path)
        epoch, first, second, worker = run.operations
        assert [o.depth for o in run.operations] == [0, 1, 1, 2]
        assert [o.parent for o in run.operations] == [None, 0, 0, 2]
        assert [o.sets_run_peak for o in run.operations] == [False, True, False, False]
        assert (first.start, first.end, first.seconds) == (0.15, 0.25, pytest.approx(0.1))
        assert first.delta_bytes == 10 * MIB
        assert (second.operation.status, second.operation.error) == ("error", "ValueError")
        assert first.totals["cpu_seconds"] == pytest.approx(0.03)
        assert first.totals["read_bytes"] == 3
        assert first.totals["tree_cpu_seconds"] == pytest.approx(0.05)
        # Between two ticks the tree's part is an estimate, but never less than what the operation's process took.
        assert second.totals["tree_cpu_seconds"] == pytest.approx(0.09)
        assert epoch.totals["tree_cpu_seconds"] == pytest.approx(0.25)
        # Alone until the worker starts at 0.2: then both.
        error = 256 * 1024
        assert first.tree_peak is not None
        assert second.tree_peak is not None
        assert worker.tree_peak is not None
        assert run.peaks.tree is not None
        assert run.peaks.tree.low == 500 * MIB - error  # and no operation had more
        assert (first.tree_peak.low, first.tree_peak.high) == (500 * MIB - error, 540 * MIB + 2 * error)
        assert (second.tree_peak.low, second.tree_peak.high) == (100 * MIB, 140 * MIB + 2 * error)
        assert (worker.tree_peak.low, worker.tree_peak.high) == (40 * MIB, 540 * MIB + 2 * error)
        assert run.peaks.tree is not None
        assert run.peaks.process is not None
        assert (run.peaks.process.bytes, run.peaks.process.operation) == (500 * MIB, "Step")
        assert run.peaks.tree.operation == "Step"

    def ledger(self, path: Path, children: int, note: str | None = None) -> RunDirectory:
        """A run without a cgroup that needed 40 MiB, then 90; its processes' marks know no time."""
        built = RunDirectory(path, reading_seconds=0.002, faults_carried=True, page_bytes=4096)
        built.columns(
            [
                column("process.memory.usage"),
                column("memwatch.tree.process.count"),
                column("memwatch.tree.unobserved"),
                column("memwatch.tree.unobserved.faults"),
                column("memwatch.tree.memory.needed.low"),
                column("memwatch.tree.memory.needed.high"),
                column("memwatch.tree.memory.needed"),
            ]
        )
        for place in range(11):
            need = (40 if place < 5 else 90) * MIB
            built.tick(place / 10, need, 1 + children, 0, 0, need - MIB, need + MIB, need)
        built.process(seen(rss=40 * MIB, peak=40 * MIB, needed=40 * MIB, file=0, note=note))
        built.operations([opening(1, 0.12, "Load"), closing(1, 0.34, 200)], exact=False)
        built.process(
            ended(1.0, peak=200 * MIB, peak_bound=200 * MIB, exit_code=0, needed=90 * MIB, file=110 * MIB)
        )
        return built

    def test_page_faults_bound_an_operation_between_its_samples(self, tmp_path: Path) -> None:
        """The process's own mark includes pages of files, and its error on many processors."""
        self.ledger(tmp_path, children=0)
        (load_,) = load(tmp_path).operations
        assert load_.tree_peak is not None
        assert (load_.tree_peak.low, load_.tree_peak.high) == (39 * MIB, 41 * MIB)

    def test_an_operation_between_two_samples_is_estimated_by_those_beside_it(self, tmp_path: Path) -> None:
        """Tasks of Dask take 50 ms: the other workers hold most of the tree's memory meanwhile."""
        built = self.ledger(tmp_path, children=1)
        built.process(seen(PID + 1, rss=70 * MIB, peak=70 * MIB, needed=70 * MIB, file=0))
        built.process(ended(1.0, pid=PID + 1, peak=75 * MIB, peak_bound=75 * MIB, exit_code=0))
        built.operations([opening(3, 0.72, "sum"), closing(3, 0.76, 20)], exact=False)
        found = load(tmp_path).operations[-1].tree_peak
        assert found is not None
        assert (found.low, found.estimate) == (0, 90 * MIB)

    def test_samples_inside_an_operation_raise_its_process_from_below(self, tmp_path: Path) -> None:
        """On 64 processors the process's own mark has an error of 95 MiB; a sample is an exact sum."""
        built = self.ledger(tmp_path, children=0)
        built.write_info(rss_error_bytes=95 * MIB, exact_sums=True)
        wide = {"certainty": "interval", "low": 0, "high": 135 * MIB}
        built.operations([opening(3, 0.52, "Train"), closing(3, 0.94, 90, **wide)], exact=False)
        train = load(tmp_path).operations[-1].operation
        assert train.peak is not None
        assert (train.peak.low, train.peak.high) == (89 * MIB, 135 * MIB)

    def test_reports_of_ended_processes_may_be_a_sample_late(self, tmp_path: Path) -> None:
        """With children, the bound of the next sample may include what they had before."""
        built = self.ledger(tmp_path, children=1)
        built.process(seen(PID + 1, rss=MIB, peak=MIB, needed=MIB, file=0))
        (load_,) = load(tmp_path).operations
        assert load_.tree_peak is not None
        assert (load_.tree_peak.low, load_.tree_peak.high) == (39 * MIB, 91 * MIB)

    def test_without_page_faults_an_operation_is_bounded_by_its_processes(self, tmp_path: Path) -> None:
        self.ledger(tmp_path, children=0, note=ProcessNote.OUTSIDE_LEDGER)
        (load_,) = load(tmp_path).operations
        assert load_.tree_peak is not None
        assert (load_.tree_peak.high or 0) >= 200 * MIB

    def test_pinned_memory_may_be_in_no_resident_size(self, tmp_path: Path) -> None:
        """io_uring held 57 MiB of unmapped pages; the bound by the processes was 52."""
        self.ledger(tmp_path, children=0, note=ProcessNote.PINNED)
        run = load(tmp_path)
        assert run.peaks.tree is not None
        assert run.peaks.tree.high is None
        (load_,) = run.operations
        assert load_.tree_peak is not None
        assert load_.tree_peak.high is None

    def test_alone_the_trees_peak_is_the_process_s(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        built.operations(
            [opening(1, 0.1, "a"), closing(1, 0.2, 77), opening(2, 0.3, "b"), closing(2, 0.4, 55)]
        )
        built.process(ended(1.0, peak=30 * MIB, peak_bound=30 * MIB, exit_code=0))
        run = load(tmp_path)
        assert [(o.tree_peak.bytes, o.tree_peak.certainty) for o in run.operations if o.tree_peak] == [
            (77 * MIB, Certainty.EXACT), (55 * MIB, Certainty.EXACT),
        ]  # fmt: skip
        assert run.peaks.main is not None
        assert (run.peaks.main.bytes, run.peaks.main.operation, run.peaks.main.at) == (77 * MIB, "a", 0.2)

    def test_the_runs_own_control_group(self, tmp_path: Path) -> None:
        built = RunDirectory(tmp_path, own_cgroup="/x")
        built.columns(GROUP)
        marks = [100, 100, 302, 302, 302, 302, 302, 302, 302, 302]
        for place, mark in enumerate(marks):
            usage = 301 if place == 2 else 50
            built.tick(place / 10, usage * MIB, MIB, 0, MIB, mark * MIB)
        built.process(seen(rss=10 * MIB, peak=10 * MIB))
        built.operations(
            [opening(1, 0.12, "rises"), closing(1, 0.28, 20), opening(2, 0.5, "flat"), closing(2, 0.7, 20)]
        )
        rises, flat = load(tmp_path).operations
        assert rises.tree_peak is not None
        assert flat.tree_peak is not None
        assert rises.tree_peak.certainty is Certainty.EXACT
        assert rises.tree_peak.low is not None
        assert rises.tree_peak.high is not None
        assert rises.tree_peak.low <= 302 * MIB <= rises.tree_peak.high
        assert (flat.tree_peak.certainty, flat.tree_peak.low, flat.tree_peak.high) == (
            Certainty.INTERVAL, 49 * MIB, 303 * MIB,
        )  # fmt: skip

    def test_processes_that_no_tick_saw_count_where_they_were(self, tmp_path: Path) -> None:
        built = RunDirectory(tmp_path)
        built.columns([column("memwatch.tree.unobserved")])
        for place in range(10):
            built.tick(place / 10, 2 if place >= 3 else 0)
        built.process(seen(rss=10 * MIB, peak=10 * MIB))
        built.operations(
            [
                opening(1, 0.21, "with", rss=MIB),
                closing(1, 0.28, 20),
                opening(2, 0.5, "without"),
                closing(2, 0.7, 20),
            ]
        )
        built.process(ended(0.9, peak=30 * MIB, peak_bound=30 * MIB, max_rss=30 * MIB, exit_code=0))
        error = 256 * 1024
        with_some, without = (figures.tree_peak for figures in load(tmp_path).operations)
        assert with_some is not None
        assert without is not None
        assert (with_some.low, with_some.high) == (20 * MIB, 20 * MIB + error + 2 * (30 * MIB + error))
        assert (without.bytes, without.certainty) == (20 * MIB, Certainty.EXACT)

    def test_a_process_that_no_tick_saw_but_that_reported_itself(self, tmp_path: Path) -> None:
        """It reset the watermark: wait4's result for its parent is not all that it had."""
        built = RunDirectory(tmp_path)
        built.columns([column("memwatch.tree.unobserved")])
        for place in range(10):
            built.tick(place / 10, 1 if place >= 3 else 0)
        built.process(seen(rss=10 * MIB, peak=10 * MIB))
        built.operations([opening(1, 0.21, "Step"), closing(1, 0.28, 20)])
        built.operations([opening(1, 0.22, "Worker", segment=700 * MIB)], pid=5000)
        built.process(ended(0.9, peak=30 * MIB, peak_bound=30 * MIB, max_rss=30 * MIB, exit_code=0))
        step, _ = load(tmp_path).operations
        assert step.tree_peak is not None
        assert step.tree_peak.high is not None
        assert step.tree_peak.high >= 700 * MIB

    def test_where_processes_could_not_be_watched_there_is_no_bound_of_the_tree(self, tmp_path: Path) -> None:
        built = self.built(tmp_path, blind=True)
        built.operations([opening(1, 0.1, "a"), closing(1, 0.2, 77)])
        built.process(ended(1.0, peak=30 * MIB, peak_bound=30 * MIB, exit_code=0))
        (figures,) = load(tmp_path).operations
        assert figures.tree_peak is not None
        assert (figures.tree_peak.low, figures.tree_peak.high) == (77 * MIB, None)

    def test_one_that_ignored_its_children_before_its_last_figures(self, tmp_path: Path) -> None:
        """The kernel dropped what they used, whatever was noted of their parent later."""
        built = RunDirectory(tmp_path)
        built.columns([column("memwatch.tree.unobserved")])
        for place in range(10):
            built.tick(place / 10, 1 if place >= 3 else 0)
        built.process(seen(rss=10 * MIB, peak=10 * MIB, note="ignores the end of its children"))
        built.operations([opening(1, 0.21, "Step"), closing(1, 0.28, 20)])
        ending = ended(0.9, peak=30 * MIB, peak_bound=30 * MIB, max_rss=30 * MIB, exit_code=0, note="exec")
        built.process(ending)
        (step,) = load(tmp_path).operations
        assert step.tree_peak is not None
        assert step.tree_peak.high is None

    def test_a_parent_that_is_not_in_the_record(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        built.operations(
            [opening(1, 0.1, "a", 77), closing(1, 0.2, 77), opening(2, 0.3, "b", 2), closing(2, 0.4, 55)]
        )
        assert [(o.depth, o.parent) for o in load(tmp_path).operations] == [(0, None), (0, None)]

    def test_boundaries_from_a_shell_have_no_figures(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        name = f"operations-mark-{PID}.jsonl"
        built.append(name, {"schema": 1, "pid": PID, "start": STARTED, "exact": False})
        built.append(
            name,
            {"open": 1, "time": STARTED + 0.1, "name": "Export", "trace": "t", "span": "s", "parent": None},
        )
        built.append(name, {"close": 1, "time": STARTED + 0.3, "status": "ok"})
        built.process(ended(1.0, peak=30 * MIB, peak_bound=30 * MIB, exit_code=0))
        (figures,) = load(tmp_path).operations
        assert (figures.operation.peak, figures.delta_bytes) == (None, None)
        assert figures.totals["tree_cpu_seconds"] == pytest.approx(0.1)
        assert figures.tree_peak is not None
        assert (figures.tree_peak.certainty, figures.tree_peak.high) == (
            Certainty.INTERVAL,
            30 * MIB + 256 * 1024,
        )

    def test_ten_thousand(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        lines = []
        for place in range(10_000):
            at = 0.1 + place * 5e-5
            lines += [opening(place, at, "Step", segment=MIB), closing(place, at + 4e-5, 20)]
        built.operations([])
        text = "".join(f'{{"open":{o["open"]},"time":{STARTED + o["time"]},"name":"Step","span":"{o["open"]}","segment":1}}\n'
                       f'{{"close":{o["open"]},"time":{STARTED + o["time"] + 4e-5},"segment":2,"peak":2,"certainty":"exact"}}\n'
                       for o in lines[::2])  # fmt: skip
        built.append(f"operations-{PID}.jsonl", text)
        run = load(tmp_path)
        assert len(run.operations) == 10_000
        assert all(o.tree_peak is not None for o in run.operations)


class TestStoppedInTheMiddle:
    """The record's lines end before the run does."""

    def built(self, path: Path, **fields: object) -> RecordedRun:
        built = RunDirectory(path, own_cgroup="/sys/fs/cgroup/x", **fields)
        built.columns([RSS, *GROUP])
        for place in range(1, 6):
            size = 100 * place * MIB
            built.tick(place / 10, size, size, 0, 0, MIB, size)
        built.process(seen(rss=10 * MIB, peak=10 * MIB))
        built.process(seen(5000, 0.1, rss=10 * MIB, peak=10 * MIB))
        built.process(seen(6000, 0.1, rss=10 * MIB, peak=10 * MIB))
        built.process(seen(7000, 0.1, rss=10 * MIB, peak=10 * MIB))
        built.process(ended(0.4, 5000, 0.1, peak=40 * MIB, peak_bound=40 * MIB, exit_code=0))
        built.process(ended(0.4, 6000, 0.1, peak=20 * MIB))
        figures = seen(7000, 0.1, peak=30 * MIB, note="alive at the end")
        built.process(figures._replace(event=ProcessEvent.FIGURES))
        built.operations(
            [
                opening(1, 0.05, "Before"), closing(1, 0.28, 20), opening(2, 0.3, "Across"), closing(2, 0.9, 20),
                opening(3, 0.92, "After"), closing(3, 0.95, 20), opening(4, 0.96, "Open"),
            ]
        )  # fmt: skip
        return load(path)

    @pytest.mark.parametrize(
        ("fields", "state"),
        [
            ({"state": "running", "ended": None, "exit": None, "host": {}}, "incomplete"),
            ({"recorded_until": STARTED + 0.5}, "finished"),
        ],
    )
    def test_operations_and_processes(self, tmp_path: Path, fields: dict[str, object], state: str) -> None:
        run = self.built(tmp_path, **fields)
        assert run.state == state
        before, across, after, still_open = run.operations
        for operation in (before, across, after):
            assert operation.operation.peak is not None
            assert operation.operation.peak.certainty is Certainty.EXACT
        assert before.tree_peak is not None
        assert before.tree_peak.high is not None
        for operation in (across, after, still_open):
            assert operation.tree_peak is None or operation.tree_peak.high is None
        assert across.tree_peak is not None
        assert across.tree_peak.low == 500 * MIB
        peaks = {process.pid: process.peak for process in run.processes}
        # Waited for by us; by a process that lives and has not reported any; of those that live, no sample saw the end.
        assert [peaks[pid].high for pid in (5000, 6000, 7000, PID)] == [  # type: ignore[union-attr]
            40 * MIB + 256 * 1024, None, None, None,
        ]  # fmt: skip
        for peak in (run.peaks.tree, run.peaks.process, run.peaks.cgroup):
            assert peak is not None
            assert (peak.certainty, peak.high) == (Certainty.INTERVAL, None)

    def test_the_peaks_that_the_monitor_kept_in_memory(self, tmp_path: Path) -> None:
        told = Peaks(None, None, Peak.exact(900 * MIB, MIB), None).to_json()
        run = self.built(tmp_path, recorded_until=STARTED + 0.5, peaks=told)
        assert run.peaks.tree == Peak.exact(900 * MIB, MIB)
        assert run.seconds == 1.0

    def test_recorded_to_its_end(self, tmp_path: Path) -> None:
        run = self.built(tmp_path)
        assert run.peaks.tree is not None
        assert run.peaks.tree.certainty is Certainty.EXACT
        assert all(o.tree_peak is not None and o.tree_peak.high is not None for o in run.operations[:2])


def test_marks_and_limits(tmp_path: Path) -> None:
    RunDirectory(
        tmp_path,
        marks=[{"time": STARTED + 0.5, "text": "disk full"}, {"text": "x"}],
        limits={"cgroup_bytes": 96 * MIB},
    )
    run = load(tmp_path)
    assert run.marks == ((0.5, "disk full"), (None, "x"))
    assert run.limits["cgroup_bytes"] == 96 * MIB
    assert (run.command, run.id) == (("python", "train.py", "--epochs", "3"), "20260101T000000Z-program-4242")


def test_no_operation_has_a_peak_that_was_reached_after_all_of_them(tmp_path: Path) -> None:
    """Workers reach the run's peak when the only operation is over, which had the peak of the main process."""
    run = recorded.record(
        tmp_path / "run",
        seconds=3.0,
        series=[recorded.TREE, recorded.MAIN],
        ticks=[(0.1 * i, (130 if i < 15 else 200) * MIB, 130 * MIB) for i in range(1, 30)],
        peaks={
            "main": recorded.peak(134, at=1.0, pid=100, how="VmHWM"),
            "process": recorded.peak(134, at=1.0, pid=100, how="VmHWM"),
            "tree": recorded.peak(200, at=2.1, how="cgroup watermark"),
        },
        processes=[*recorded.process(100, 0.0, 3.0, 134), *recorded.process(101, 1.2, 2.9, 80)],
        operations={100: [recorded.opened(1, 0.5, "load"), recorded.closed(1, 1.0, 134)]},
    )
    (operation,) = load(run).operations
    assert not operation.sets_run_peak


def test_an_open_operation_may_have_continued_after_the_monitor_was_killed(tmp_path: Path) -> None:
    path = recorded.nested(tmp_path / "cut")
    assert {one.tree_peak.certainty for one in load(path).operations if one.tree_peak} == {Certainty.EXACT}
    file = path / "run.json"
    cut = {"state": "running", "exit": None, "peaks": None, "totals": None, "quality": None, "ended": None}
    file.write_text(json.dumps(json.loads(file.read_text()) | cut | {"host": {"name": "another machine"}}))
    open_ones = [one for one in load(path).operations if one.operation.status == "open"]
    assert [one.operation.name for one in open_ones][:1] == ["Train"]
    for one in open_ones:
        assert one.tree_peak is not None
        assert (one.tree_peak.certainty, one.tree_peak.high) == (Certainty.INTERVAL, None)

"""Signals at random moments to every party: the record loads, the target is as without us, nothing stays behind."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.control_group import group
from tests.support.torture import LONG, Trial, alive, trial, wait_for
from tests.support.wrapped import MIB, work

ROUNDS = 12 if LONG else 3
GRANDCHILD = "( ( a10 s60000 ) s60000 ) a10 s60000"


def _party(run: Trial, who: str, monitor: int) -> int:
    """Pid of one of the processes of a run of GRANDCHILD."""
    target = run.recorded()
    if who == "monitor":
        return monitor
    if who == "target":
        return target
    child: list[int] = []
    wait_for(lambda: child.extend(_children(target)) or (child and _children(child[0])))
    return _children(child[0])[0]


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("who", ["monitor", "target", "grandchild"])
def test_killed_at_random_moments(tmp_path: Path, who: str, number: signal.Signals) -> None:
    """Kill any process in any way: the recorded data stays, what was not killed lives as it would have."""
    rng = random.Random(f"{who} {number}")
    for step in range(ROUNDS):
        place = tmp_path / str(step)
        place.mkdir()
        with trial(place) as run:
            wrapped = run.start(run.command(work(GRANDCHILD), "--interval", "0.01"))
            victim = _party(run, who, wrapped.pid)
            target = int(run.info["target"]["pid"])
            run.outlived = True
            time.sleep(rng.random() * 0.3)
            os.kill(victim, number)
            if who == "monitor" and number == signal.SIGKILL:
                wrapped.wait(60)
                assert alive(target), "the target lives on without its monitor"
                assert run.report().state == "incomplete"
            elif who == "grandchild":
                wait_for(lambda pid=victim: not alive(pid))
                assert alive(target)
                os.kill(target, signal.SIGKILL)
                assert run.wait(wrapped).code == -signal.SIGKILL
                assert "processes" in run.report().text
            else:
                outcome = run.wait(wrapped)
                assert outcome.code == -number
                assert run.report().ended["signal"] == number
            assert run.report().ticks >= 3
            for pid in run.processes():
                os.kill(pid, signal.SIGKILL)


def test_the_monitor_is_killed_before_it_has_recorded_anything(tmp_path: Path) -> None:
    """At any moment of the start: a target that has started goes on, a record that has begun is one."""
    for step in range(20 if LONG else 8):
        place = tmp_path / str(step)
        place.mkdir()
        with trial(place) as run:
            wrapped = run.start(run.command(work(f"s{300 + 20 * step} o1"), "--quiet"), cwd=place)
            time.sleep(0.02 * step)
            wrapped.kill()
            wrapped.wait(60)
            began = bool(run.processes())
            wait_for(lambda: not run.processes())
            if began:
                assert (place / "out").stat().st_size == MIB
            if (run.out / "run.json").exists():
                assert run.report().state == "incomplete"


def test_a_monitor_that_is_suspended(tmp_path: Path) -> None:
    """As by a suspended machine or a debugger: the target goes on, the gap is reported, the end is not lost."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("a20 s1500 a30 s500 x5"), "--interval", "0.05"))
        target = run.recorded()
        os.kill(wrapped.pid, signal.SIGSTOP)
        wait_for(lambda: not alive(target))
        os.kill(wrapped.pid, signal.SIGCONT)
        assert run.wait(wrapped).code == 5
        report = run.report()
        assert report.state == "finished"
        assert report.json["quality"]["missed_ticks"] >= 10
        assert report.json["quality"]["longest_gap"] > 0.5
        peak = report.json["peaks"]["main"]
        assert (peak["high"] or peak["bytes"]) >= 50 * MIB, "what happened meanwhile is not denied"
        assert "missed" in report.text


def test_a_target_that_is_stopped_and_continued(tmp_path: Path) -> None:
    """Nothing of ours stops with it where no shell looks, and its end is the bare command's."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("a20 s400 x6"), "--interval", "0.02"))
        target = run.recorded()
        os.kill(target, signal.SIGSTOP)
        before = run.recorded(5)
        size = (run.out / "samples.jsonl").stat().st_size
        wait_for(lambda: (run.out / "samples.jsonl").stat().st_size > size)
        os.kill(before, signal.SIGCONT)
        assert run.wait(wrapped).code == 6
        assert run.report().ended["exit_code"] == 6


def test_stopped_and_continued_all_the_time(tmp_path: Path) -> None:
    """Monitor and target in turn, at random."""
    rng = random.Random(7)
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("( a5 s100 ) w " * 24 + "x3"), "--interval", "0.01"))
        target = run.recorded()
        while alive(target):
            victim = rng.choice([wrapped.pid, target])
            try:
                os.kill(victim, signal.SIGSTOP)
                time.sleep(rng.random() * 0.1)
                os.kill(victim, signal.SIGCONT)
            except ProcessLookupError:
                break
            time.sleep(rng.random() * 0.05)
        assert run.wait(wrapped).code == 3
        assert run.report().ended["exit_code"] == 3


# -- the OOM killer


def test_the_oom_killer_takes_the_whole_group(tmp_path: Path) -> None:
    """Target and grandchildren over the limit: one after the other dies, the monitor outside reports it."""
    with group(64 * MIB) as place, trial(tmp_path) as run:
        command = run.command(
            work("( a40 s3000 ) ( a40 s3000 ) ( a40 s3000 ) a40 s800 x4"), "--cgroup", "off"
        )
        outcome = run.wait(run.start(command, preexec_fn=place.enter))
        assert outcome.code in (4, -signal.SIGKILL, 1)
        if (run.out / "run.json").exists():
            report = run.report()
            if report.state == "finished":
                assert report.ended["oom_kills"] >= 1
                assert "OOM" in report.text
        for pid in run.processes():
            os.kill(pid, signal.SIGKILL)


SCANT = (*range(17, 64, 1 if LONG else 6), *range(64, 401, 4 if LONG else 32))
"""MiB of address space, from what an interpreter barely starts in to what everything fits into."""


@pytest.mark.parametrize(("descriptors", "recorded"), [(12, False), (32, False), (64, True)])
def test_a_monitor_with_few_descriptors(descriptors: int, recorded: bool, tmp_path: Path) -> None:
    """The writer and another part failed once the first files were open: two lines, and the record had no end."""
    with trial(tmp_path) as run:
        limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        outcome = run.run([*limited, *run.command(["sh", "-c", "sleep 0.3; exit 3"])])
        assert outcome.code == 3, outcome.err
        if recorded:
            assert run.report().ended["exit_code"] == 3
        else:
            words = "nothing is recorded: ulimit -n allows fewer than 48 open files."
            assert outcome.err.splitlines() == [f"otel-memwatch: {words}"]


@pytest.mark.parametrize(
    "mib",
    [pytest.param(mib, marks=pytest.mark.thorough if number % 3 else ()) for number, mib in enumerate(SCANT)],
)
def test_a_monitor_that_is_out_of_memory_itself(mib: int, tmp_path: Path) -> None:
    """A limit that leaves no room for us, or for parts of us: the target runs, and what is missing is reported in a line."""
    with trial(tmp_path) as run:
        command = run.command(work("a5 s300 x7"), "--prometheus", "0", plot=True)
        outcome = run.run(["sh", "-c", f'ulimit -v {mib << 10}; exec "$@"', "sh", *command])
        assert outcome.code == 7, outcome.err
        assert "Traceback" not in outcome.err
        # As README says.
        if mib >= 64:
            assert run.report().ended["exit_code"] == 7
        if mib >= 160:
            assert "metrics for Prometheus" in outcome.err
        if mib >= 288:
            assert (run.out / "memory.png").exists(), outcome.err
        elif mib < 240:
            assert "ulimit -v" in outcome.err or "MemoryError" in outcome.err

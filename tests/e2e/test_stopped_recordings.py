"""A recording that stopped in the middle claims nothing for the time after; a monitor that lives knows the end all the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.api.loaded_run import Run
from otel_memwatch.reports import REPORTS, render
from otel_memwatch.reports.plot.peak import peak_extent
from otel_memwatch.run import load
from otel_memwatch.runtime.kernel import processors, rss_error
from otel_memwatch.truth.cgroup_windows import charge_error
from tests.support import counters
from tests.support.control_group import memory_parent
from tests.support.disturb import broken_disk
from tests.support.torture import Outcome, Trial, alive, file_system, needs_root, trial, wait_for
from tests.support.wrapped import MIB, PROGRAM, work

ROOT = Path(__file__).parents[2]
GROWN = 80
"""MiB that the target takes after the recording has stopped."""


@pytest.fixture(params=["require", "off"])
def group(request: pytest.FixtureRequest) -> list[str]:
    """With a control group of the run's own, and without."""
    if request.param == "require":
        memory_parent()
    return ["--cgroup", str(request.param)]


def no_more_than_at_least(path: Path) -> None:
    """Whatever could have grown since is reported as "at least" by every output."""
    run = load(path)
    assert run.state == "incomplete"
    for peak in (run.peaks.tree, run.peaks.process, run.peaks.main, run.peaks.cgroup):
        if peak is not None:
            assert (peak.certainty.value, peak.high) == ("interval", None), peak
    assert run.peaks.tree is not None
    assert run.peaks.tree.bytes < GROWN * MIB
    assert Run(path).peaks.tree == run.peaks.tree
    assert not run.stacks.captures
    texts = {
        name: text(path, name)
        for name, report in REPORTS.items()
        # Profiles need captured stacks, which this run has none of.
        if not (report.binary or report.drawn or "--stacks" in report.help)
    }
    assert "at least" in texts["text"]
    assert "at least" in texts["summary"]
    assert "at least" in texts["markdown"]
    assert "covered the whole time" not in texts["text"]
    for name in texts.keys() - {"json"}:
        assert "exact" not in texts[name].lower(), texts[name]
    drawn = peak_extent(run.peaks.tree)
    assert drawn is not None
    assert drawn.open_above
    listed = listing(path)
    assert "at least" in listed
    assert "exact" not in listed
    assert "exact" not in json.dumps(json.loads(text(path, "json"))["peaks"])


def text(path: Path, name: str) -> str:
    import io

    out = io.BytesIO()
    render(name, load(path), out, encoding="utf-8")
    return out.getvalue().decode()


def listing(path: Path) -> str:
    return subprocess.run(
        [*PROGRAM, "runs", str(path)], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def told_all(outcome: Outcome, group: list[str], code: int = 4) -> None:
    """The summary of a monitor that lives reports the end and the peak."""
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert "still running" not in outcome.err
    assert "unknown" not in outcome.err
    (ended,) = [line for line in outcome.err.splitlines() if line.startswith("  result ")]
    assert "exit code 4 after" in ended
    (memory,) = [line for line in outcome.err.splitlines() if line.startswith("  peak memory ")]
    assert "at least" not in memory, "both ends are known"
    exact = "exact" in memory
    assert ("exact" if exact else "interval") in certainties(GROWN * MIB, group), memory
    figures = [float(number) for number in re.findall(r"([\d.]+)(?:-| MiB)", memory)]
    # Without a group the upper end may have huge pages of other programs in it, so it is close on an idle machine only.
    near = max(figures) if "require" in group else min(figures)
    error = 0 if exact or "require" not in group else charge_error(processors()) / MIB
    assert GROWN - error <= min(figures) <= near < GROWN + 8 + 2 * error, memory


def certainties(size: int, group: list[str]) -> tuple[str, ...]:
    """The certainties that a tree's peak may have on this machine."""
    return counters.of_group(size, doubt=MIB // 2) if "require" in group else ("interval",)


def test_the_monitor_is_killed(tmp_path: Path, group: list[str]) -> None:
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work(f"s900 a{GROWN} s300"), "--interval", "0.02", *group))
        target = run.recorded()
        wrapped.kill()
        wrapped.wait(60)
        wait_for(lambda: not alive(target))
        no_more_than_at_least(run.out)


def test_a_report_while_it_is_recorded(tmp_path: Path, group: list[str]) -> None:
    """What is needed so far is a lower bound of what will have been needed."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("a20 s1500"), "--interval", "0.02", *group))
        run.recorded(10)
        tree = load(run.out).peaks.tree
        assert load(run.out).state == "running"
        assert tree is not None
        assert (tree.certainty.value, tree.high) == ("interval", None)
        assert run.wait(wrapped).code == 0
        tree = load(run.out).peaks.tree
        assert tree is not None
        assert tree.certainty.value in certainties(tree.bytes, group)
        assert tree.high is not None


def test_the_largest_process_had_ended(tmp_path: Path, group: list[str]) -> None:
    """The operation's peak is over and stays exact; that of the largest process is not, since another one may outgrow it."""
    with trial(tmp_path) as run:
        command = run.command(work(f"( a30 s1500 ) w s60000 a{GROWN}"), "--interval", "0.02", *group)
        wrapped = run.start(command)
        target = run.recorded()
        wait_for(lambda: '"exit"' in (run.out / "processes.jsonl").read_text())
        wrapped.kill()
        wrapped.wait(60)
        os.kill(target, signal.SIGKILL)
        wait_for(lambda: not alive(target))
        found = load(run.out)
        largest = found.peaks.process
        assert largest is not None
        assert (largest.certainty.value, largest.high) == ("interval", None)
        assert largest.bytes >= 30 * MIB - rss_error()
        main, child = sorted(found.processes, key=lambda one: one.start)
        assert main.peak is not None
        assert main.peak.high is None
        assert child.end is not None
        assert child.peak is not None
        # The target waited for it: wait4 reports more to its parent alone.
        assert child.peak.bytes >= 30 * MIB - rss_error()


def test_operations_before_and_after_the_stop(tmp_path: Path, group: list[str]) -> None:
    """One that had closed keeps its certainty, one that was open or came later has a lower bound of the tree's memory."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    program = f"""
        import os, time
        from otel_memwatch import operation
        with operation("before"):
            kept = bytearray(30 << 20)
            time.sleep(0.3)
        time.sleep(0.2)
        with operation("across"):
            open({str(ready)!r}, "w").close()
            while not os.path.exists({str(go)!r}):
                time.sleep(0.02)
            more = bytearray(60 << 20)
            time.sleep(0.2)
        with operation("after"):
            time.sleep(0.1)
    """
    with trial(tmp_path) as run:
        argv = [sys.executable, "-c", textwrap.dedent(program)]
        command = run.command(argv, "--interval", "0.02", *group)
        wrapped = run.start(command, env=run.variables(PYTHONPATH=str(ROOT)))
        target = run.recorded()
        wait_for(ready.exists)
        ticks = (run.out / "samples.jsonl").stat().st_size
        wait_for(lambda: (run.out / "samples.jsonl").stat().st_size > ticks + 500)
        wrapped.kill()
        wrapped.wait(60)
        go.touch()
        wait_for(lambda: not alive(target))
        found = load(run.out)
        by_name = {figures.operation.name: figures for figures in found.operations}
        assert set(by_name) == {"before", "across", "after"}
        for figures in by_name.values():
            # The process's own report needed no monitor.
            assert figures.operation.peak is not None
            assert figures.operation.peak.certainty.value == counters.of_process(figures.operation.peak.bytes)
        before = by_name["before"].tree_peak
        assert before is not None
        if "require" in group:
            assert before.certainty.value in certainties(before.bytes, group)
        # Its resident size holds libraries: it is no lower bound of the memory that the tree needed.
        across, after = by_name["across"].tree_peak, by_name["after"].tree_peak
        assert across is not None
        assert (across.certainty.value, across.high) == ("interval", None)
        assert across.bytes >= 30 * MIB
        assert after is None or after.high is None


# -- the disk


@pytest.mark.quiet  # a late tick makes of two near bounds two far ones
def test_a_full_disk(tmp_path: Path, group: list[str]) -> None:
    """Too small for the record from the start, and for its end."""
    page = tmp_path / "page.md"
    with file_system(tmp_path / "disk", "size=28k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        argv = work(f"s700 a{GROWN} s200 x4")
        variables = run.variables(GITHUB_STEP_SUMMARY=str(page))
        outcome = run.run(run.command(argv, "--interval", "0.005", *group), env=variables)
        told_all(outcome, group)
        assert len([line for line in outcome.ours if "No space left" in line]) == 1
        assert "exit code 4 after" in page.read_text()
        assert "exact" in page.read_text() or "best estimate" in page.read_text()
        if load(run.out).state == "incomplete":
            # On a slow machine nothing but the end is missing: the target's own peak is over then.
            for peak in (load(run.out).peaks.tree, load(run.out).peaks.cgroup):
                assert peak is None or peak.high is None
        else:
            assert load(run.out).ending.exit_code == 4
        run.out = disk / "strict"
        shutil.rmtree(disk / "run")
        told_all(run.run(run.command(argv, "--interval", "0.005", "--strict", *group)), group, code=125)


def fill(disk: Path, name: str = "ballast") -> Path:
    """Takes all the space that there is; the file that holds it."""
    ballast = disk / name
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.mark.quiet  # a late tick makes of two near bounds two far ones
def test_a_disk_that_is_full_to_the_end(tmp_path: Path, group: list[str]) -> None:
    """Another program fills it, the space that was kept for the end too."""
    with file_system(tmp_path / "disk", "size=600k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        wrapped = run.start(run.command(work(f"s1500 a{GROWN} s300 x4"), "--interval", "0.005", *group))
        run.recorded()
        fill(disk)
        wait_for(lambda: not (run.out / ".reserve").exists())
        fill(disk, "more")
        told_all(run.wait(wrapped), group)
        no_more_than_at_least(run.out)


@pytest.mark.quiet  # a late tick makes of two near bounds two far ones
def test_space_becomes_free_before_the_end(tmp_path: Path, group: list[str]) -> None:
    """The record has the true end and peaks, and reports what is missing."""
    with file_system(tmp_path / "disk", "size=600k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        wrapped = run.start(run.command(work(f"s1500 a{GROWN} s300 x4"), "--interval", "0.005", *group))
        run.recorded()
        ballast = fill(disk)
        wait_for(lambda: not (run.out / ".reserve").exists())
        counts = [0]

        def stopped() -> bool:  # the sample that found no space may follow
            counts.append((run.out / "samples.jsonl").read_bytes().count(b"\n"))
            return counts[-1] == counts[-2]

        wait_for(stopped)
        ticks = counts[-1] - 1
        ballast.unlink()
        told_all(run.wait(wrapped), group)
        found = load(run.out)
        assert (found.state, found.ending.exit_code) == ("finished", 4)
        assert found.peaks.tree is not None
        assert found.peaks.tree.certainty.value in certainties(found.peaks.tree.bytes, group)
        assert (found.peaks.tree.high or 0) >= GROWN * MIB
        assert len(found.samples()) <= ticks
        assert found.quality["ticks"] > ticks
        assert "could not be written" in json.dumps(found.marks)
        assert "could not be written" in text(run.out, "text")


@pytest.mark.quiet  # without a group, processes that a late tick did not see make the peak an interval
def test_a_device_with_errors(tmp_path: Path, group: list[str]) -> None:
    switch = tmp_path / "switch"
    with trial(tmp_path) as run:
        variables = run.variables(**broken_disk(run.out, switch))
        command = run.command(work(f"s1500 a{GROWN} s300 x4"), "--interval", "0.01", *group)
        wrapped = run.start(command, env=variables)
        run.recorded()
        switch.touch()
        outcome = run.wait(wrapped)
        told_all(outcome, group)
        assert len([line for line in outcome.ours if "Input/output error" in line]) == 1
        no_more_than_at_least(run.out)


def test_a_process_that_was_joined(tmp_path: Path) -> None:
    """`attach` reports the end too, when nothing of the run could be recorded but its beginning."""
    with file_system(tmp_path / "disk", "size=28k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        target = run.start(work(f"s1200 a{GROWN} s400"))
        attach = [*PROGRAM, "attach", "--no-plot", "--interval", "0.005", "--out", str(run.out)]
        outcome = run.run([*attach, str(target.pid)])
        target.wait(60)
        assert outcome.code == 0
        assert "still running" not in outcome.err
        (ended,) = [line for line in outcome.err.splitlines() if line.startswith("  result ")]
        assert "ended after " in ended
        (memory,) = [line for line in outcome.err.splitlines() if line.startswith("  peak memory ")]
        assert f"{GROWN}." in memory or f"{GROWN + 1}." in memory
        assert len([line for line in outcome.ours if "No space left" in line]) == 1


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """As any user has it: no privilege, no file system of one's own."""
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 10, 12 << 10))

    with trial(tmp_path) as run:
        command = run.command(work(f"s900 a{GROWN} s300 x4"), "--interval", "0.005", "--cgroup", "off")
        told_all(run.run(command, preexec_fn=limited), ["--cgroup", "off"])
        found = load(run.out)
        assert (found.state, found.ending.exit_code) == ("finished", 4)
        assert found.peaks.tree is not None
        assert found.peaks.tree.bytes >= GROWN * MIB
        assert "could not be written" in json.dumps(found.marks)


@pytest.mark.quiet  # a late tick makes of two near bounds two far ones
def test_an_operation_beyond_the_missing_ticks(tmp_path: Path, group: list[str]) -> None:
    """The record ends well, but without the ticks of an operation that holds the run's peak: the run's figure does not change."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    program = f"""
        import os, time
        from otel_memwatch import operation
        with operation("before"):
            kept = bytearray(30 << 20)
            time.sleep(0.3)
        time.sleep(0.2)
        with operation("beyond"):
            open({str(ready)!r}, "w").close()
            while not os.path.exists({str(go)!r}):
                time.sleep(0.02)
            os.system({shell(f"a{GROWN} s200")!r})
    """
    needs_root()
    with file_system(tmp_path / "disk", "size=900k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        argv = [sys.executable, "-c", textwrap.dedent(program)]
        command = run.command(argv, "--interval", "0.02", *group)
        wrapped = run.start(command, env=run.variables(PYTHONPATH=str(ROOT)))
        run.recorded()
        wait_for(ready.exists)
        ballast = fill(disk)
        wait_for(lambda: not (run.out / ".reserve").exists())
        ballast.unlink()
        go.touch()
        outcome = run.wait(wrapped)
        assert outcome.code == 0, outcome.err
        by_name = {figures.operation.name: figures for figures in load(run.out).operations}
        beyond, before = by_name["beyond"].tree_peak, by_name["before"].tree_peak
        assert beyond is not None
        # Of it there is no upper bound by itself, and none above the run's, which the monitor had in memory.
        whole = load(run.out).peaks.tree
        assert whole is not None
        assert (beyond.certainty, beyond.high) == (whole.certainty, whole.high)
        assert whole.certainty.value in certainties(whole.bytes, group)
        assert before is not None
        if "require" in group:
            assert beyond.bytes >= (30 + GROWN) * MIB
            assert before.certainty.value in certainties(before.bytes, group)


def shell(script: str) -> str:
    import shlex

    return shlex.join(work(script))


# -- the monitor itself

DYING = """
import sys
from otel_memwatch.record.writer import RunWriter
from otel_memwatch.cli import main
real, count = RunWriter.tick, iter(range(10**9))

def tick(self, snapshot):
    if next(count) > 20:
        raise RuntimeError("out of luck")
    real(self, snapshot)

RunWriter.tick = tick
sys.argv = ["otel-memwatch", *sys.argv[1:]]
main()
"""


def test_the_sampling_thread_dies(tmp_path: Path, group: list[str]) -> None:
    """A mistake of ours in the middle: the end is reported, and of the tree what was seen before, as a lower bound."""
    with trial(tmp_path) as run:
        command = run.command(work(f"s900 a{GROWN} s300 x4"), "--interval", "0.02", *group)
        command[: command.index("wrap")] = [sys.executable, "-c", DYING]
        outcome = run.run(command)
        assert outcome.code == 4
        assert "out of luck" in outcome.err
        assert "exit code 4 after" in outcome.err
        assert "at least" in outcome.err
        found = load(run.out)
        assert (found.state, found.ending.exit_code) == ("finished", 4)
        for peak in (found.peaks.tree, found.peaks.cgroup):
            if peak is not None:
                assert (peak.certainty.value, peak.high) == ("interval", None)
        # Its end was reported by wait4, all the same.
        assert found.peaks.main is not None
        assert found.peaks.main.bytes >= GROWN * MIB - rss_error()


# -- the run directory


@pytest.mark.quiet  # a late tick makes of two near bounds two far ones
def test_the_run_directory_is_removed(tmp_path: Path, group: list[str]) -> None:
    """The figures are reported, and in one line that the record is lost."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work(f"s900 a{GROWN} s300 x4"), "--interval", "0.01", *group))
        run.recorded()
        remove(run)
        outcome = run.wait(wrapped)
        told_all(outcome, group)
        assert len([line for line in outcome.err.splitlines() if "removed or replaced" in line]) == 1
        assert "the record is lost" in outcome.err
        assert "otel-memwatch report" not in outcome.err
        assert not run.out.exists()


def remove(run: Trial) -> None:
    while run.out.exists():  # a file may be written just when the directory is to go
        shutil.rmtree(run.out, ignore_errors=True)


def test_the_group_goes_while_it_is_recorded(tmp_path: Path) -> None:
    """No program reads a watermark of a group that the target has left: what it needed later is in none."""
    needs_root()
    from tests.support.control_group import group as another

    with another() as elsewhere, trial(tmp_path) as run:
        command = run.command(work(f"s3000 a{GROWN} s300 x4"), "--interval", "0.02", "--cgroup", "require")
        wrapped = run.start(command)
        target = run.recorded(10)
        (elsewhere.path / "cgroup.procs").write_text(str(target))
        Path(run.info["own_cgroup"]).rmdir()
        assert run.wait(wrapped).code == 4
        peaks: Any = load(run.out).peaks
        assert peaks.tree.high >= GROWN * MIB
        assert peaks.cgroup.high is None

"""The main job: `wrap` on programs of known behaviour, read back through the report."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.runtime.kernel import rss_error
from tests.support import counters
from tests.support.control_group import group, memory_parent
from tests.support.torture import wait_for
from tests.support.wrapped import MIB, PROGRAM, environment, rendered, work, wrap

GROUPS = ["auto", "off"]


def own_group() -> bool:
    """Whether `--cgroup auto` can make a group here."""
    return os.access(memory_parent(), os.W_OK)


def covers(peak: dict[str, Any], truth: int, slack: int) -> bool:
    """Whether a peak's claim holds for a truth that is itself known to `slack` bytes."""
    low, high = peak["low"], peak["high"]
    return (low is None or low <= truth + slack) and (high is None or high >= truth - slack)


# -- truth


@pytest.mark.parametrize("cgroup", GROUPS)
def test_a_blip_between_two_ticks(tmp_path: Path, cgroup: str) -> None:
    """300 MiB touched and freed at once, at one tick a second: exact all the same, where pages of files can be distinguished."""
    run = wrap(work("s50 a300 f s50"), "--cgroup", cgroup, "--interval", "1", out=tmp_path / "run")
    tree = run.peak("tree")
    assert covers(tree, 301 * MIB, MIB)
    assert (tree["estimate"] or tree["bytes"]) >= 285 * MIB
    if cgroup != "off":  # without a group a lower bound is only what a sample read as memory
        assert tree["low"] >= 285 * MIB
    for name in ("main", "process", "tree") if cgroup != "off" else ("main", "process"):
        peak = run.peak(name)
        of_it = counters.of_group(peak["bytes"]) if name == "tree" else (counters.of_process(peak["bytes"]),)
        assert peak["certainty"] in of_it, name
        assert 300 * MIB - rss_error() <= peak["bytes"] <= 306 * MIB, name


@pytest.mark.quiet  # huge pages and files in memory that other programs take meanwhile may be the run's, for all that /proc shows
def test_a_blip_without_a_group_is_bounded_closely(tmp_path: Path) -> None:
    """What others take can only widen the bound, so the closest of three counts."""
    trees = [
        wrap(
            work("s50 a300 f s50"), "--cgroup", "off", "--interval", "1", out=tmp_path / f"run{number}"
        ).peak("tree")
        for number in range(3)
    ]
    assert all(covers(tree, 301 * MIB, MIB) for tree in trees)
    assert min(tree["high"] for tree in trees) <= 320 * MIB


@pytest.mark.parametrize("cgroup", GROUPS)
def test_a_child_that_lives_30_ms(tmp_path: Path, cgroup: str) -> None:
    """Whatever it held is in the peaks although no tick need have seen it."""
    run = wrap(work("s200 ( a300 s30 ) w s100"), "--cgroup", cgroup, "--interval", "1", out=tmp_path / "run")
    process = run.peak("process")
    assert process["certainty"] == counters.of_process(process["bytes"])
    assert 300 * MIB - rss_error() <= process["bytes"] <= 306 * MIB
    assert covers(run.peak("tree"), 302 * MIB, 4 * MIB)
    # Without a group only wait4 reports it, file pages included: that is an estimate, and no lower bound.
    tree = run.peak("tree")
    assert (tree["estimate"] or tree["bytes"]) >= 290 * MIB
    if cgroup != "off":
        assert run.peak("tree")["low"] >= 298 * MIB
    assert run.peak("main")["low"] < 20 * MIB


def test_shared_pages_count_once(tmp_path: Path) -> None:
    """512 MiB shared by five processes is 512 MiB needed, not 2.5 GiB."""
    script = "a512 ( s1500 ) ( s1500 ) ( s1500 ) ( s1500 ) s1500 w"
    run = wrap(work(script), "--cgroup", "auto", out=tmp_path / "run")
    tree = run.peak("tree")
    assert tree["certainty"] in counters.of_group(tree["bytes"])
    assert 511 * MIB <= tree["bytes"] <= 520 * MIB
    assert max(run.column("memwatch.tree.memory.usage")) >= 5 * 512 * MIB


def test_sum_of_rss_pss_and_group_are_distinguished(tmp_path: Path) -> None:
    """Each under a separate name, each right: 64 MiB shared by five processes."""
    script = "a64 ( s2500 ) ( s2500 ) ( s2500 ) ( s2500 ) s2500 w"
    run = wrap(work(script), "--cgroup", "auto", out=tmp_path / "run")
    assert max(run.column("memwatch.tree.memory.usage")) >= 5 * 64 * MIB
    assert 64 * MIB <= max(run.column("memwatch.tree.memory.pss")) <= 70 * MIB
    assert 64 * MIB <= max(run.column("memwatch.cgroup.memory.usage")) <= 70 * MIB


def test_shared_pages_without_a_group_are_bounded(tmp_path: Path) -> None:
    """The interval holds the truth, and its headline is not the sum that counts shared pages five times."""
    script = "a512 ( s1500 ) ( s1500 ) ( s1500 ) ( s1500 ) s1500 w"
    run = wrap(work(script), "--cgroup", "off", out=tmp_path / "run")
    tree = run.peak("tree")
    assert tree["certainty"] in ("exact", "interval")
    assert covers(tree, 514 * MIB, 4 * MIB)
    assert tree["bytes"] <= 520 * MIB


@pytest.mark.parametrize("cgroup", GROUPS)
def test_children_at_the_same_time_and_after_one_another(tmp_path: Path, cgroup: str) -> None:
    """Two at once need the sum, two in turn the larger: neither is mistaken for the other."""
    together = wrap(
        work("( a100 s2000 ) ( a100 s2000 ) w"), "--cgroup", cgroup, out=tmp_path / "together"
    ).peak("tree")
    assert covers(together, 201 * MIB, 4 * MIB)
    assert together["low"] >= 190 * MIB
    in_turn = wrap(
        work("( a100 s400 ) w s300 ( a100 s400 ) w"), "--cgroup", cgroup, out=tmp_path / "turn"
    ).peak("tree")
    assert covers(in_turn, 101 * MIB, 4 * MIB)
    if cgroup == "auto":
        assert in_turn["bytes"] <= 110 * MIB


@pytest.mark.parametrize("cgroup", GROUPS)
def test_eight_loops_of_short_commands(tmp_path: Path, cgroup: str) -> None:
    """Thousands of processes that no tick sees: nothing breaks, totals are complete, bounds hold."""
    loop = "for i in $(seq 150); do /bin/true; done; sleep 0.5"
    run = wrap(
        ["sh", "-c", f"for j in 1 2 3 4 5 6 7 8; do ({loop}) & done; wait"],
        "--cgroup",
        cgroup,
        out=tmp_path / "r",
    )
    assert run.code == 0
    tree = run.peak("tree")
    assert tree["low"] is not None
    assert tree["certainty"] in ("exact", "interval")
    assert run.report["totals"]["processes"] >= 9
    assert run.report["totals"]["cpu_seconds"] > 0


def test_processes_that_no_tick_saw_are_counted_as_possible(tmp_path: Path) -> None:
    """Some of 300 short commands are seen, the number of all is within the bounds, and the summary says that there were more."""
    # A command that every tick sees: of a lone process the summary does not say that it was the largest.
    script = "sleep 1.5 & i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done; wait"
    run = wrap(["sh", "-c", script], "--interval", "0.5", out=tmp_path / "run")
    seen, unseen = run.report["totals"]["processes"], run.report["totals"]["unseen_processes"]
    assert 2 <= seen < 302 <= seen + unseen
    assert f", one of at least {seen} processes" in run.err


def test_a_parent_that_ignores_sigchld(tmp_path: Path) -> None:
    """Its children vanish without a trace in the kernel's accounts: the peak must not be called certain without them."""
    run = wrap(
        work("i ( a50 s250 ) ( a50 s250 ) s600"), "--cgroup", "off", "--interval", "1", out=tmp_path / "run"
    )
    tree = run.peak("tree")
    assert covers(tree, 101 * MIB, 4 * MIB)
    if own_group():
        exact = wrap(work("i ( a50 s250 ) ( a50 s250 ) s600"), out=tmp_path / "exact").peak("tree")
        assert covers(exact, 101 * MIB, 6 * MIB)
        assert exact["low"] >= 95 * MIB


def test_a_process_of_many_threads(tmp_path: Path) -> None:
    """300 threads of 64 KiB each: within the stated error of the kernel's counters."""
    run = wrap(work("t300 a50 s300"), "--cgroup", "off", out=tmp_path / "run")
    peak = run.peak("main")
    witness = subprocess.run(work("t300 a50 p"), capture_output=True, text=True, check=True)
    truth = int(witness.stdout.split()[1]) * 1024
    assert covers(peak, truth, 2 * MIB)


def test_a_thousand_processes(tmp_path: Path) -> None:
    """All seen, all recorded, descriptors within the limit."""
    until = "[ $(grep -c seen $OTEL_MEMWATCH_RUN_DIR/processes.jsonl) -gt 1000 ]"
    # a reported process may not be counted yet: two ticks later it is
    later = "ticks=$(wc -l < $FILE); until [ $(wc -l < $FILE) -gt $((ticks + 2)) ]; do sleep 0.2; done"
    script = f"""FILE=$OTEL_MEMWATCH_RUN_DIR/samples.jsonl
        for i in $(seq 1000); do sleep 99 & pids="$pids $!"; done
        until {until}; do sleep 0.2; done; {later}; kill $pids; wait; :"""
    run = wrap(["sh", "-c", f"ulimit -n 256; {script}"], out=tmp_path / "run")
    assert run.code == 0
    assert len({entry["pid"] for entry in run.processes("seen")}) >= 990
    assert max(run.column("memwatch.tree.process.count")) >= 990


def test_children_that_leave_the_session_are_still_the_trees(tmp_path: Path) -> None:
    """nohup, setsid, double forks: seen, and reaped with their figures when they end before the command."""
    script = "( S ( a60 s400 ) ) s3000"  # the child may begin late, and ends before the command
    run = wrap(work(script), "--cgroup", "off", out=tmp_path / "run")
    assert run.peak("process")["low"] >= 59 * MIB
    exits = [entry for entry in run.processes("exit") if entry.get("peak", 0) >= 60 * MIB]
    assert exits
    assert exits[0]["exit_code"] == 0


def test_a_target_that_drops_its_privileges(tmp_path: Path) -> None:
    """Non-dumpable and another user: kept descriptors go on, the peak stays as exact as the counters."""
    if os.geteuid() != 0:
        pytest.skip("only root can drop privileges")
    run = wrap(work("s250 u d a80 f s250"), "--cgroup", "off", out=tmp_path / "run")
    main = run.peak("main")
    assert main["certainty"] == counters.of_process(main["bytes"])
    assert 80 * MIB - rss_error() <= main["bytes"] <= 86 * MIB


def test_cpu_and_io_of_children_that_no_tick_saw(tmp_path: Path) -> None:
    """Totals are the kernel's own, reaped children included."""
    run = wrap(work("( b300 o20 ) w ( b200 ) w s50"), "--interval", "1", out=tmp_path / "run", cwd=tmp_path)
    totals = run.report["totals"]
    assert 0.5 <= totals["cpu_seconds"] <= 1.0
    assert 20 * MIB <= totals["write_chars"] <= 20 * MIB + 4096


def test_a_driver_that_was_not_asked_is_not_said_to_be_silent(tmp_path: Path) -> None:
    """A command that has ended before drivers are opened: nothing is known of them."""
    run = wrap(["true"], out=tmp_path / "run")
    hints = [
        source.get("hint") or "" for name, source in run.info["sources"].items() if name.startswith("gpu_")
    ]
    assert len(hints) == 2
    assert not any("did not answer" in hint for hint in hints)


def test_the_launcher_is_not_taken_for_the_target(tmp_path: Path) -> None:
    """A tiny program's ru_maxrss is the spawner's: no peak above what the program had is claimed exactly."""
    run = wrap(["/bin/true"], "--cgroup", "off", out=tmp_path / "run")
    peak = run.peak("main")
    assert peak["certainty"] in ("censored", "exact", "interval")
    assert (peak["low"] or 0) <= 4 * MIB


# -- how it ended


@pytest.mark.parametrize(("script", "code"), [("x0", 0), ("x3", 3), ("x255", 255)])
def test_exit_codes(tmp_path: Path, script: str, code: int) -> None:
    run = wrap(work(script), out=tmp_path / "run")
    assert run.code == code
    assert run.report["ended"]["exit_code"] == code
    assert run.report["ended"]["signal"] is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_death_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    run = wrap(work(f"a20 k{int(number)}"), out=tmp_path / "run")
    assert run.code == -number
    assert run.report["ended"]["signal"] == number
    assert number.name in run.report["ended"]["reason"]


@pytest.mark.parametrize(("argv", "code"), [(["/nonexistent/program"], 127), (["/etc/passwd"], 126)])
def test_a_command_that_cannot_be_executed(tmp_path: Path, argv: list[str], code: int) -> None:
    run = wrap(argv, out=tmp_path / "run")
    assert run.code == code
    assert run.err.count("\n") == 1
    assert argv[0] in run.err
    assert not (tmp_path / "run").exists()


def limited(limit: int, argv: list[str], out: Path, *options: str) -> tuple[int, str]:
    """Runs `wrap` inside a group of `limit` bytes; its exit code and stderr."""
    with group(limit) as place:
        done = subprocess.run(
            [*PROGRAM, "wrap", "--out", str(out), "--no-plot", *options, "--", *argv],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment(),
            preexec_fn=place.enter,
        )
        return done.returncode, done.stderr


def report(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*PROGRAM, "report", str(path), "--json"], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("cgroup", GROUPS)
def test_killed_by_the_oom_killer(tmp_path: Path, cgroup: str) -> None:
    """The report says that it was the OOM killer, and against which limit."""
    code, said = limited(96 * MIB, work("a200"), tmp_path / "run", "--cgroup", cgroup)
    assert code == -signal.SIGKILL
    ended = report(tmp_path / "run")["ended"]
    assert ended["signal"] == signal.SIGKILL
    assert ended["oom_kills"] == 1
    assert "OOM" in ended["reason"]
    assert "96.0 MiB" in ended["reason"]
    assert "OOM" in said


@pytest.mark.parametrize("cgroup", GROUPS)
def test_only_a_grandchild_was_killed_by_the_oom_killer(tmp_path: Path, cgroup: str) -> None:
    """The job's own exit code is 0 and still the report has the reason."""
    code, said = limited(96 * MIB, work("( ( a200 ) w ) w"), tmp_path / "run", "--cgroup", cgroup)
    assert code == 0
    ended = report(tmp_path / "run")["ended"]
    assert (ended["exit_code"], ended["oom_kills"]) == (0, 1)
    assert "OOM" in ended["reason"]
    assert "OOM" in said


# -- nothing is lost


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """SIGKILL of the monitor, of the target, of both: the record loads and holds the last tick before death.

    After so many ticks, and so far into the interval: the moments are the same on machines of any speed.
    """
    for number in range(12):
        ticks = 3 + 2 * number
        out = tmp_path / f"run-{number}"
        process = subprocess.Popen(
            [*PROGRAM, "wrap", "--quiet", "--interval", "0.02", "--out", str(out), "--", *work("s20000")],
            env=environment(),
        )
        wait_for(functools.partial(has_ticks, out / "samples.jsonl", ticks))
        time.sleep(0.02 * number / 12)
        assert process.poll() is None
        target = json.loads((out / "run.json").read_text())["target"]["pid"]
        victims = [[process.pid], [target], [process.pid, target]][number % 3]
        killed_at = time.monotonic()
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        process.wait(30)
        if target not in victims:
            os.kill(target, signal.SIGKILL)
        told = report(out)
        monitor_died = process.pid in victims
        assert told["run"]["state"] == ("incomplete" if monitor_died else "finished")
        last = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()[1:]][-1]
        assert killed_at - last[0] < 1.0
        assert told["quality"]["ticks"] >= ticks


def has_ticks(samples: Path, count: int) -> bool:
    return samples.exists() and samples.read_text().count("\n") > count


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """The target is not disturbed; one line reports it; the record loads, with its mark."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk]).returncode
    ):
        pytest.skip("a file system of a given size needs root and mount")
    try:
        run = wrap(work("s1500 x7"), "--interval", "0.001", "--no-report", out=disk / "run")
        assert run.code == 7
        told = [line for line in run.err.splitlines() if line.startswith("otel-memwatch: recording stopped")]
        assert len(told) == 1
        assert "No space left" in json.dumps(run.info["marks"])
        assert run.report["quality"]["ticks"] > 50
    finally:
        subprocess.run(["umount", disk], check=True)


# -- bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--intervall", "1", "--", "touch", "STARTED"], "--intervall"),
        (["--interval", "0", "--", "touch", "STARTED"], "--interval"),
        (["--interval", "-1", "--", "touch", "STARTED"], "--interval"),
        (["--interval", "nan", "--", "touch", "STARTED"], "--interval"),
        (["--interval", "1e9", "--", "touch", "STARTED"], "--interval"),
        (["--cgroup", "maybe", "--", "touch", "STARTED"], "--cgroup"),
        (["--out", "/proc/nowhere/run", "--", "touch", "STARTED"], "/proc/nowhere/run"),
        (["--out", "/tmp", "--", "touch", "STARTED"], "/tmp exists already"),
        ([], "no command"),
        (["--"], "no command"),
    ],
)
def test_usage_errors_are_one_sentence_and_start_nothing(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = subprocess.run(
        [*PROGRAM, "wrap", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "empty", "foreign", "truncated", "newer", "file"])
@pytest.mark.parametrize("command", [["report"], ["report", "--json"], ["plot"], ["export", "--to", "csv"]])
def test_what_is_not_a_run_is_reported_in_one_sentence(tmp_path: Path, kind: str, command: list[str]) -> None:
    path = tmp_path / "run"
    if kind == "file":
        path.write_text("hello")
    elif kind != "missing":
        path.mkdir()
        text = {"truncated": '{"schema": 1, "id"', "newer": '{"schema": 99}', "foreign": None, "empty": None}[
            kind
        ]
        if text is not None:
            (path / "run.json").write_text(text)
        if kind == "foreign":
            (path / "letter.txt").write_text("dear")
    name, *options = command
    done = subprocess.run(
        [*PROGRAM, name, str(path), *options], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr
    assert done.stdout == ""


# -- what the user sees


def test_our_words_go_to_stderr_only(tmp_path: Path) -> None:
    run = wrap(["sh", "-c", "echo out; echo err >&2"], out=tmp_path / "run")
    assert run.out == "out\n"
    assert run.err.startswith("err\n")
    assert 3 <= run.err.count("\n") <= 14
    quiet = wrap(["sh", "-c", "echo out; echo err >&2"], "--quiet", out=tmp_path / "quiet")
    assert (quiet.out, quiet.err) == ("out\n", "err\n")


def test_the_default_place_is_below_the_working_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "wrap", "--no-plot", "--", "true"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    (run,) = (tmp_path / "memwatch-runs").iterdir()
    assert run.name in done.stderr
    assert {"run.json", "samples.jsonl", "processes.jsonl", "report.txt", "report.html"} <= {
        p.name for p in run.iterdir()
    }


def test_a_limit_of_the_address_space_is_reported(tmp_path: Path) -> None:
    """It ends programs that the machine would have had memory for: without it the report would not tell why."""
    hungry = "kept = []\nwhile True: kept.append(b'x' * (10 << 20))"
    place = tmp_path / "run"
    command = [*PROGRAM, "wrap", "--out", str(place), "--", sys.executable, "-c", hungry]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -v 409600; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert (done.returncode, "MemoryError" in done.stderr) == (1, True)
    told = "400.0 MiB of address space per process (ulimit -v)"
    assert told in done.stderr
    assert told in rendered(place).read_text()
    page = subprocess.run(
        [*PROGRAM, "report", str(place), "--format", "markdown"], capture_output=True, text=True
    )
    assert told in page.stdout


def test_a_program_that_dies_of_memory_error(tmp_path: Path) -> None:
    """The picture is drawn, the exit code is Python's, the reached peak is reported."""
    program = textwrap.dedent("""
        import resource, time
        resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
        kept = []
        while True:
            kept.append(b"x" * (20 << 20))
            time.sleep(0.02)
    """)
    done = subprocess.run(
        [*PROGRAM, "wrap", "--plot", "--out", str(tmp_path / "run"), "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    assert (tmp_path / "run/memory.png").read_bytes().startswith(b"\x89PNG")
    assert report(tmp_path / "run")["peaks"]["main"]["bytes"] > 400 * MIB

"""If /proc is missing, or shows the processes of another pid namespace, no other program's figures are reported as the run's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_memwatch.run import load
from tests.support import counters
from tests.support.torture import Trial, needs_root, trial
from tests.support.wrapped import PROGRAM, work

MIB = 1 << 20


def elsewhere(command: list[str]) -> list[str]:
    """In a separate pid namespace, below the /proc of ours."""
    return ["unshare", "--pid", "--fork", "--kill-child", *command]


def without(command: list[str]) -> list[str]:
    """Without any /proc."""
    return ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh", *command]


def one_line(run: Trial, command: list[str], code: int, why: str) -> None:
    """Runs it; the exit code is kept, and one line says what is not known and what to do."""
    outcome = run.run(command)
    assert outcome.code == code, outcome.err
    (line,) = [line for line in outcome.ours if line.startswith("otel-memwatch: /proc")]
    assert line.startswith(f"otel-memwatch: /proc {why}: processes are recorded at their end only")
    assert "mount -t proc proc /proc" in line


@pytest.mark.parametrize(
    ("place", "why"), [(elsewhere, "is that of another pid namespace"), (without, "is not mounted")]
)
def test_what_wait4_reported_is_all_there_is(
    tmp_path: Path, place: Callable[[list[str]], list[str]], why: str
) -> None:
    needs_root()
    child = work("a60 s300")
    burn = "import subprocess, time, sys\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass\n"
    program = f"{burn}subprocess.run({child!r})\nsys.exit(7)"
    with trial(tmp_path) as run:
        command = run.command([sys.executable, "-c", program], "--cgroup", "off", plot=True)
        one_line(run, place(command), 7, why)
        told = json.loads((run.out / "run.json").read_text())
        assert told["state"] == "finished"
        assert told["exit"]["exit_code"] == 7
        peaks, totals = told["peaks"], told["totals"]
        for name, certainty in (
            ("process", "interval"),
            ("tree", "sampled"),
        ):  # resident, with pages of files
            assert 60 * MIB <= peaks[name]["bytes"] <= 75 * MIB, peaks
            assert peaks[name]["high"] is None, "processes that nobody waited for may have had more"
            assert peaks[name]["certainty"] == certainty
        assert 0.3 <= totals["cpu_seconds"] < 2
        assert totals["read_bytes"] is totals["processes"] is None
        assert (run.out / "report.txt").exists()
        assert (run.out / "memory.png").exists()
        (main,) = load(run.out).processes
        assert (main.exit_code, main.end) == (7, pytest.approx(main.start + load(run.out).seconds, abs=0.3))


def test_a_separate_group_still_counts(tmp_path: Path) -> None:
    needs_root()
    with trial(tmp_path) as run:
        command = run.command(work("a60 s300 x3"), "--cgroup", "require")
        one_line(run, elsewhere(command), 3, "is that of another pid namespace")
        tree = json.loads((run.out / "run.json").read_text())["peaks"]["tree"]
        assert tree["certainty"] in counters.of_group(tree["bytes"], doubt=MIB // 4)
        assert 60 * MIB <= tree["bytes"] <= 66 * MIB


def test_no_process_is_attached_to_by_a_pid_of_elsewhere(tmp_path: Path) -> None:
    needs_root()
    done = subprocess.run(
        elsewhere([*PROGRAM, "attach", "1", "--out", str(tmp_path / "run")]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "/proc is that of another pid namespace" in done.stderr
    assert not (tmp_path / "run").exists()


def test_doctor_says_it() -> None:
    needs_root()
    done = subprocess.run(
        elsewhere([*PROGRAM, "doctor", "--json"]), capture_output=True, text=True, check=True
    )
    found = {one["subject"]: one for one in json.loads(done.stdout)}
    assert found["process_tree"]["state"] == "absent"
    assert found["peak of a process"]["state"] == "limited"
    assert "mount -t proc proc /proc" in found["peak of a process"]["hint"]
    assert not [one for one in found.values() if "CONFIG_PROC_CHILDREN" in one["text"]]

"""Budgets of `wrap` and `check` on real programs: verdicts, exit codes, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
from otel_memwatch import operation
with operation("Load"):
    small = bytearray(b"x") * (20 << 20)
with operation("Train"):
    large = bytearray(b"x") * (120 << 20)
"""
OURS = {"GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"}


def run(tmp_path, *arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in OURS}
    return subprocess.run(
        [sys.executable, "-m", "otel_memwatch", *arguments], cwd=tmp_path, env={**environment, **variables},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def wrap(tmp_path, *options, program=PROGRAM, **variables):
    command = ["--no-plot", *options, "--", sys.executable, "-c", program]
    return run(tmp_path, "wrap", *command, **variables)


def test_every_budget_is_reported_and_a_broken_one_is_the_exit_code(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.otel-memwatch.budgets]\n"operation:Train" = "1GiB"\n')
    done = wrap(tmp_path, "--out=r", "--budget", "process=100MiB", "--budget=seconds=600", "--budget=operation-process:Load=90MiB",
                "--budget=operation:Gone=1GiB", GITHUB_ACTIONS="true")  # fmt: skip
    assert done.returncode == 1, done.stderr
    told = json.loads((tmp_path / "r" / "budgets.json").read_text())["budgets"]
    assert {entry["figure"]: entry["verdict"] for entry in told} == {
        "process": "over",
        "seconds": "within",
        "operation-process:Load": "within",
        "operation:Gone": "cannot tell",
        "operation:Train": "within",
    }
    assert "over its budget of 100.0 MiB" in done.stderr
    assert done.stderr.count("::error title=otel-memwatch::largest process: ") == 1
    report = json.loads(run(tmp_path, "report", "r", "--json").stdout)
    assert report["budgets"] == told
    assert "over its budget of 100.0 MiB" in run(tmp_path, "report", "r").stdout


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", -15)]
)
def test_the_command_s_own_end_goes_before_a_broken_budget(tmp_path, program, code):
    done = wrap(tmp_path, "--budget", "process=1MiB", program="x = bytearray(b'x') * (40 << 20)\n" + program)
    assert "over its budget" in done.stderr
    assert done.returncode == code


def test_a_broken_budget_is_reported_though_nothing_else_is(tmp_path):
    quiet = wrap(
        tmp_path,
        "--quiet",
        program="x = bytearray(b'x') * (40 << 20)",
        OTEL_MEMWATCH_BUDGET="cpu=1h;process=30MiB",
    )
    assert quiet.returncode == 1
    assert len(quiet.stderr.splitlines()) == 1
    assert quiet.stderr.startswith("otel-memwatch: largest process: ")


@pytest.mark.parametrize(
    "budget", ["memory=2X", "memory=-1GiB", "memory=nanGiB", "memory", "seconds=nan", "disc=1GiB"]
)
def test_what_is_no_budget_is_refused_before_anything_starts(tmp_path, budget):
    done = run(tmp_path, "wrap", f"--budget={budget}", "--", "touch", "started")
    assert (done.returncode, os.listdir(tmp_path)) == (2, [])
    assert "--budget" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_growth_is_held_against_a_baseline_and_the_exit_code_can_be_chosen(tmp_path):
    assert wrap(tmp_path, "--quiet", "--out=r").returncode == 0
    assert run(tmp_path, "check", "r", "--save-baseline", "memory.json").returncode == 0
    grown = PROGRAM.replace("120", "140")
    growth = ("--quiet", "--budget=process=+5%")
    done = wrap(tmp_path, *growth, "--baseline=memory.json", "--budget-exit-code=42", program=grown)
    assert done.returncode == 42, done.stderr
    assert wrap(tmp_path, *growth, "--baseline=memory.json").returncode == 0
    assert (
        wrap(tmp_path, *growth, "--baseline=memory.json", "--budget-exit-code=0", program=grown).returncode
        == 0
    )
    # The same from the project, whose baseline need not be there yet.
    project = (
        '[tool.otel-memwatch]\nbaseline = "memory.json"\n[tool.otel-memwatch.budgets]\nprocess = "+5%"\n'
    )
    (tmp_path / "pyproject.toml").write_text(project)
    assert wrap(tmp_path, "--quiet", program=grown).returncode == 1
    assert run(tmp_path, "check").returncode == 1
    (tmp_path / "memory.json").unlink()
    assert wrap(tmp_path, "--quiet", program=grown).returncode == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--budget=memory=+5%",),
        ("--baseline=none.json",),
        ("--budget-exit-code=256",),
        ("--budget-exit-code=x",),
    ],
)
def test_a_baseline_that_is_not_there_is_reported_before_anything_starts(tmp_path, options):
    done = wrap(tmp_path, *options, program="open('started', 'w')")
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "started").exists()


def test_recorded_runs_are_checked_and_unusable_ones_named(tmp_path):
    wrap(tmp_path, "--out=whole", "--quiet")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text('{"schema"')
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "run.json").write_text('{"schema": 99}')
    running = subprocess.Popen(
        [sys.executable, "-m", "otel_memwatch", "wrap", "--out=running", "--", sys.executable, "-c",
         "print(flush=True); input()"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        running.stdout.readline()
        named = ["whole", "damaged", "later", "running", "absent"]
        over = run(tmp_path, "check", *named, "--budget=operation-process:*=100MiB")
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert over.returncode == 1, over.stderr
    verdicts = {line.split()[4]: line for line in over.stdout.splitlines()[1:]}
    assert "within" in verdicts["Load"]
    assert "over" in verdicts["Train"]
    left_out = [line.split()[2].rstrip(":") for line in over.stderr.splitlines() if ": skipped " in line]
    assert left_out == ["damaged", "later", "running", "absent"]
    nothing = run(tmp_path, "check", "damaged", "--budget=memory=1GiB")
    assert nothing.returncode == 2
    unknown = ["check", "whole", "--budget=operation:Gone=1GiB"]
    assert [run(tmp_path, *unknown, *more).returncode for more in ([], ["--strict"])] == [0, 3]
    saved = run(tmp_path, "check", "whole", "--save-baseline=b.json")
    assert (saved.returncode, saved.stdout) == (0, "")
    grown = run(
        tmp_path,
        "check",
        "whole",
        "--baseline=b.json",
        "--budget=operation-process:Train=+5%",
        "--format=json",
    )
    assert grown.returncode == 0
    assert json.loads(grown.stdout)["runs"][0]["budgets"][0]["verdict"] == "within"

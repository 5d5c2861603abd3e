"""A repository gated end to end, by the script that deploy/github-actions/gate runs: every change is a branch, which is
compared with the baseline of the main branch and merged where the gate lets it pass.

    python -m tests.bench.gate.repository [--commits 30] [--runs 5]

Three of the changes need more memory, each in another way; the others do not. It takes ten minutes, and ends with 0 where
the gate refused the three and nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "deploy" / "github-actions" / "gate" / "gate.sh"

BENCHMARK = """\
import time

from otel_memwatch import operation
from work import load, report, train

with operation("Load"):
    data = load()
with operation("Train"):
    train(data)
with operation("Report"):
    report(data)
time.sleep(0.8)
"""
WORK = """\
import subprocess
import sys


def load():
    return [bytearray(b"x") * (1 << 20) for _ in range(100)]


def train(data):
    return len(bytearray(b"x") * (30 << 20)) + len(data)


def report(data):
    return len(bytearray(b"x") * (60 << 20)) + len(data)
"""
HELPED = """\
    buffer = bytearray(b"x") * (60 << 20)
    program = "x = bytearray(b'x') * (40 << 20); print(flush=True); input()"
    helper = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    helper.stdout.readline()  # both have what they need
    helper.communicate(b"\\n")
    return len(buffer) + len(data)
"""
PLANTED = {
    "Load reads four more": ("range(100)", "range(104)"),
    "a larger buffer, well below the run's peak": ("(30 << 20)", "(45 << 20)"),
    "a helper beside the report": ('    return len(bytearray(b"x") * (60 << 20)) + len(data)\n', HELPED),
}
"""What each of the changes that need more replaces in work.py."""


class Outcome(NamedTuple):
    """What the gate said of a change."""

    change: str
    planted: bool
    refused: bool
    output: str


def gate_repository(folder: Path, changes: list[str], runs: int) -> list[Outcome]:
    """Makes the repository in `folder` and gates the changes one after the other; those of `PLANTED` by their names."""
    gate = _Gate(folder, runs)
    repository = folder / "repository"
    repository.mkdir()
    _git(repository, "init", "-q", "-b", "main")
    (repository / "benchmark.py").write_text(BENCHMARK)
    (repository / "work.py").write_text(WORK)
    _commit(repository, "the program")
    assert gate.run(repository, save=True).returncode == 0
    outcomes = []
    for number, change in enumerate(changes):
        _git(repository, "checkout", "-q", "-b", f"change-{number}")
        work = repository / "work.py"
        text = work.read_text()
        if change in PLANTED:
            before, after = PLANTED[change]
            assert before in text
            work.write_text(text.replace(before, after))
        else:
            work.write_text(f"{text}\n\ndef helper_{number}(value):\n    return value + {number}\n")
        _commit(repository, change)
        done = gate.run(repository, save=False)
        assert done.returncode in (0, 1), done.stderr + done.stdout
        outcomes.append(Outcome(change, change in PLANTED, done.returncode == 1, done.stdout + done.stderr))
        _git(repository, "checkout", "-q", "main")
        if done.returncode == 0:
            _git(repository, "merge", "-q", "--ff-only", f"change-{number}")
            assert gate.run(repository, save=True).returncode == 0
    return outcomes


class _Gate:
    """The step of the action, with what a runner gives it."""

    def __init__(self, folder: Path, runs: int) -> None:
        tools = folder / "otel-memwatch" / "bin"
        tools.mkdir(parents=True)
        tool = tools / "otel-memwatch"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m otel_memwatch "$@"\n')
        tool.chmod(0o755)
        self._environment = {
            **os.environ,
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "PYTHONPATH": str(ROOT),
            "MEMWATCH_COMMAND": f"{sys.executable} benchmark.py",
            "MEMWATCH_NAME": "benchmark",
            "MEMWATCH_RUNS": str(runs),
            "MEMWATCH_BASELINE": str(folder / "baseline.json"),
        }

    def run(self, repository: Path, *, save: bool) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, "MEMWATCH_SAVE": str(save).lower()}
        return subprocess.run(
            ["bash", str(SCRIPT)],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )


def _commit(repository: Path, message: str) -> None:
    _git(repository, "add", "benchmark.py", "work.py")
    _git(repository, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", message)


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate.repository")
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    changes = [f"a change that needs no more ({i})" for i in range(chosen.commits - len(PLANTED))]
    rng = random.Random(1)
    for change in PLANTED:
        changes.insert(rng.randrange(1, len(changes)), change)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = gate_repository(Path(folder), changes, chosen.runs)
    for one in outcomes:
        mark = "" if one.planted == one.refused else "   <- WRONG"
        print(f"{'refused' if one.refused else 'passed '}  {one.change}{mark}")
        if mark:
            print(one.output)
    return 0 if all(one.planted == one.refused for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

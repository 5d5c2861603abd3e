"""Time and memory of listing many runs, cold and warm, and while runs are being written.

`python -m tests.bench.bench_index`. Prints processor time beside wall time, since other work on the machine is in the latter, and the ratio to the
budget: 10 000 runs in 3 s cold, 0.2 s warm, 100 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.record.format import INDEX_FILE
from tests.support import recorded

BUDGET = {"cold": 3.0, "warm": 0.2}
BUDGET_MIB = 100.0
PROGRAM = [sys.executable, "-m", "otel_memwatch"]


class Spent(NamedTuple):
    """What a command took."""

    wall: float
    cpu: float
    mib: float


def build(directory: Path, runs: int) -> None:
    """So many finished runs, each with the `run.json` of a real one under another name."""
    template = recorded.short(directory / "template")
    info = json.loads((template / "run.json").read_text())
    started = info["started"]["wall"]
    for number in range(runs):
        run = directory / "runs" / f"{number:06d}"
        run.mkdir(parents=True)
        info |= {"id": run.name, "name": f"job {number % 50}", "tags": {"rule": f"rule{number % 7}"}}
        info["started"]["wall"] = started + number
        (run / "run.json").write_text(json.dumps(info, indent=1))


def spent(*words: str) -> Spent:
    """What `otel-memwatch` with these words took."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - begin, cpu, usage.ru_maxrss / 1024)


def measure(directory: Path) -> dict[str, Spent]:
    """A first listing, a second one, and one by a condition."""
    runs = str(directory / "runs")
    (directory / "runs" / INDEX_FILE).unlink(missing_ok=True)
    words = ("runs", runs, "--last", "20")
    return {
        "cold": spent(*words),
        "warm": min(spent(*words) for _ in range(3)),
        "where": spent("runs", runs, "--where", "tag.rule=rule3 and peak>1MiB", "--last", "20"),
        "advise": spent("advise", runs, "--by", "name", "--for", "json"),
    }


QUERIES = 8
"""Listings at the same time."""


def writing(directory: Path, jobs: int) -> tuple[Spent, float]:
    """A listing while so many jobs are recorded in the same directory, and the longest wall time of several listings at once.

    These begin without a cache, so all of them write it, and none may fail or say anything on stderr.
    """
    processes = [
        subprocess.Popen(
            [*PROGRAM, "wrap", "--quiet", "--no-plot", "--no-report", "--out", str(directory / "runs" / f"going{number}"), "--", "sleep", "600"]
        )
        for number in range(jobs)
    ]  # fmt: skip
    try:
        while (
            sum(1 for number in range(jobs) if (directory / f"runs/going{number}/samples.jsonl").exists())
            < jobs
        ):
            time.sleep(0.1)
        listed = subprocess.run(
            [*PROGRAM, "runs", str(directory / "runs"), "--where", "state=running", "--columns", "id", "--format", "csv"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert len(listed.stdout.splitlines()) == jobs + 1, listed.stdout
        alone = spent("runs", str(directory / "runs"), "--last", "60")
        (directory / "runs" / INDEX_FILE).unlink()
        begin = time.perf_counter()
        queries = [
            subprocess.Popen(
                [*PROGRAM, "runs", str(directory / "runs"), "--last", "60"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(QUERIES)
        ]  # fmt: skip
        for query in queries:
            out, problems = query.communicate()
            assert query.returncode == 0, problems
            assert not problems, problems
            assert len(out.splitlines()) == 62, out
        return alone, time.perf_counter() - begin
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000, 20_000, 50_000, 100_000])
    parser.add_argument("--jobs", type=int, default=50)
    given = parser.parse_args()
    for runs in given.runs:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            build(directory, runs)
            for name, took in measure(directory).items():
                budget = (
                    f", {took.cpu / BUDGET[name]:.2f} of the budget"
                    if runs == 10_000 and name in BUDGET
                    else ""
                )
                print(
                    f"{runs:7} runs {name:8} {took.wall:6.2f} s, {took.cpu:6.2f} s of CPU, {took.mib:5.0f} MiB{budget}",
                    flush=True,
                )
            if given.jobs and runs == given.runs[0]:
                took, longest = writing(directory, given.jobs)
                print(
                    f"{runs:7} runs while {given.jobs} are written: {took.wall:6.2f} s, {took.cpu:6.2f} s of CPU, {took.mib:5.0f} MiB; "
                    f"{QUERIES} at once without a cache, none refused: {longest:6.2f} s"
                )


if __name__ == "__main__":
    main()

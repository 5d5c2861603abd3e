"""How good the advice is: replayed on recorded runs of real jobs, and judged by the kernel.

    python -m tests.bench.advice record DIR [--runs 16]      twenty jobs, each so often, recorded under `wrap`
    python -m tests.bench.advice judge DIR [--runs 8]        each job again, in a control group with the advised limit
    python -m tests.bench.advice table DIR                   the table of the manual, from both

`judge` needs a memory hierarchy that it may make groups in: root, control groups of version 1 or 2. The replay leaves out
one run at a time: the advice of the others is held against what that one needed. "Killed" is one that needed more than it
would have got as far as it is known: an exact figure, or the low end of an interval. What the kernel says is `judge`'s.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.wings.advice.advice import advise
from otel_memwatch.wings.advice.inputs import input_of
from otel_memwatch.wings.advice.recommendation import Advice
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench.advice.jobs import JOBS, Job, argv, environment, prepare
from tests.bench.advice.limited_group import limited_group
from tests.bench.advice.recommenders import RULES, curve, polled

PERIOD_OF = {"VPA": (60.0,), "KRR": (15.0, 30.0, 60.0), "seff": (15.0, 30.0, 60.0)}
MIB = 1 << 20


def slug(job: Job) -> str:
    """Its name as a directory."""
    return job.name.replace(" ", "-")


# -- recording


def record(base: Path, runs: int, only: list[str]) -> None:
    """Records so many runs of each job, those that are there already left as they are; the jobs take turns."""
    work = base / "work"
    if not (work / "Makefile").exists():
        prepare(work)
    lots = random.Random()
    for number in range(runs):
        for job in JOBS:
            out = base / "runs" / slug(job) / f"{number:03d}"
            if out.exists() or (only and job.name not in only):
                continue
            value = lots.choice(job.inputs) if job.inputs else None
            tags = [] if value is None else ["--tag", f"size={value}"]
            command = [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-plot", "--no-report", "--name", job.name,
                       "--tag", f"job={slug(job)}", *tags, "--out", str(out), "--", *argv(job, value)]  # fmt: skip
            done = subprocess.run(
                command,
                cwd=work,
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
            )
            if done.returncode:
                print(f"{job.name}: exit code {done.returncode}: {done.stderr[-200:]!r}", flush=True)


def recorded(base: Path, job: Job) -> list[IndexedRun]:
    """Its runs."""
    return [
        row for row in index([base / "runs" / slug(job)]) if row.state == "finished" and not row.exit_code
    ]


def advised(job: Job, rows: list[IndexedRun], odds: float) -> Advice:
    """The advice from these runs."""
    (advice,) = advise(rows, by=lambda _: job.name, odds=odds, feature="tag.size" if job.inputs else None)
    return advice


def limit_of(advice: Advice, row: IndexedRun) -> float:
    """The limit that a run would have got: by its input, where that explains the memory."""
    assert advice.memory is not None
    amount = input_of(row, "tag.size")
    return advice.memory if advice.line is None or amount is None else advice.line.at(amount)


# -- the replay


class Replay(NamedTuple):
    """What would have become of the recorded runs of a job."""

    runs: int
    killed: int
    over: list[float]
    """How far each limit was above what its run needed, as a share of that."""


def replay(job: Job, rows: list[IndexedRun], odds: float) -> Replay:
    """Holds the advice of all other runs against each."""
    killed, over = 0, []
    for number, left_out in enumerate(rows):
        limit = limit_of(advised(job, rows[:number] + rows[number + 1 :], odds), left_out)
        assert left_out.memory is not None
        killed += left_out.memory > limit
        over.append(limit / left_out.memory - 1)
    return Replay(len(rows), killed, over)


def others(rows: list[IndexedRun], lots: random.Random) -> dict[str, Replay]:
    """The replay of each other rule with each period of its looks."""
    curves = [curve(row) for row in rows]
    found = {}
    for name, periods in PERIOD_OF.items():
        for period in periods:
            seen = [polled(*one, period, lots.uniform(0, period)) for one in curves]
            killed, over = 0, []
            for number, row in enumerate(rows):
                limit = RULES[name](seen[:number] + seen[number + 1 :])
                assert row.memory is not None
                killed += row.memory > limit
                over.append(limit / row.memory - 1)
            found[f"{name}, {period:.0f} s"] = Replay(len(rows), killed, over)
    return found


# -- the kernel


def judge(base: Path, runs: int, odds: float, only: list[str]) -> None:
    """Runs each job again with the advised limit; the results are added to judged.jsonl."""
    lots = random.Random()
    with (base / "judged.jsonl").open("a") as file:
        for number in range(runs):
            for job in JOBS:
                rows = recorded(base, job)
                if len(rows) < 2 or (only and job.name not in only):
                    continue
                advice = advised(job, rows, odds)
                value = lots.choice(job.inputs) if job.inputs else None
                assert advice.memory is not None
                limit = advice.memory if value is None or advice.line is None else advice.line.at(value)
                with limited_group(int(limit)) as group:
                    done = subprocess.run(argv(job, value), cwd=base / "work", env=environment(), preexec_fn=group.enter,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # fmt: skip
                    result = {"job": job.name, "odds": odds, "limit": int(limit), "kills": group.kills(), "exit_code": done.returncode,
                              "watermark": group.watermark()}  # fmt: skip
                file.write(json.dumps(result) + "\n")
                file.flush()
                if result["kills"] or result["exit_code"]:
                    print(f"{number} {result}", flush=True)


# -- the table


def table(base: Path) -> str:
    """The results, as the manual shows them."""
    every = {job.name: rows for job in JOBS if len(rows := recorded(base, job)) > 2}
    jobs = {job.name: job for job in JOBS}
    lots = random.Random(1)
    lines = [
        "| what asks | runs | killed | above what was needed: median | of nine in ten, at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for odds in (1e-3, 1e-2):
        replays = [replay(jobs[name], rows, odds) for name, rows in every.items()]
        lines.append(_line(f"`advise --odds 1/{1 / odds:.0f}`", replays))
    by_rule: dict[str, list[Replay]] = {}
    for rows in every.values():
        for rule, found in others(rows, lots).items():
            by_rule.setdefault(rule, []).append(found)
    lines += [_line(rule, replays) for rule, replays in by_rule.items()]
    if (base / "judged.jsonl").exists():
        judged = [json.loads(line) for line in (base / "judged.jsonl").read_text().splitlines()]
        killed = sum(1 for one in judged if one["kills"] or one["exit_code"])
        lines.append(
            f"\nIn a control group with the advised limit: {killed} of {len(judged)} runs of {len({one['job'] for one in judged})} jobs were killed."
        )
    return "\n".join(lines)


def _line(name: str, replays: list[Replay]) -> str:
    runs, killed = sum(one.runs for one in replays), sum(one.killed for one in replays)
    over = sorted(share for one in replays for share in one.over)
    return f"| {name} | {runs} | {killed} ({killed / runs:.1%}) | {statistics.median(over):+.0%} | {over[int(0.9 * len(over))]:+.0%} |"


def per_job(base: Path, odds: float) -> str:
    """The replay job by job."""
    lines = []
    for job in JOBS:
        rows = recorded(base, job)
        if len(rows) > 2:
            found = replay(job, rows, odds)
            advice = advised(job, rows, odds)
            lines.append(f"{job.name:12} {job.kind:18} {found.runs:3} runs, {found.killed} killed, {statistics.median(found.over):+6.1%}, "
                         f"limit {(advice.memory or 0) / MIB:7.1f} MiB {'; '.join(advice.notes)}")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "judge", "table", "jobs"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--odds", type=float, default=1e-3)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    base = given.directory.resolve()
    if given.what == "record":
        record(base, given.runs, given.only)
    elif given.what == "judge":
        judge(base, given.runs, given.odds, given.only)
    elif given.what == "jobs":
        print(per_job(base, given.odds))
    else:
        print(table(base))


if __name__ == "__main__":
    main()

"""Advice and verdicts against the true knee: the smallest limit with at least 95 % of a program's speed.

    python -m tests.bench.bench_knee [--only "NAME; ..."] [--repeat 3] [--work DIR] [--disk 60MB]

Each of twelve programs with a known working set runs from a cold page cache:

1. without a limit: the advice is based on this run
2. under limits chosen by bisection, `--repeat` times each; the quickest run counts. Only time decides here, not our verdict
3. under 40 to 105 % of the knee: a run that took 1.5 times as long, hung or was killed has to be called short of memory or
   killed; a run slowed by less than 5 % must not be

Goals: full-speed advice is 1.00 to 1.25 times the knee in 19 of 20 cases, at least 95 % of the slow runs are recognized, and at
most 1 % of the others are called slow. A knee below the smallest request of schedulers counts as that. Needs a memory hierarchy that it may make groups in, and a quiet machine.
`--disk` limits the reads in a second from the disk of `--work`; it needs version 1 of the blkio controller.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.units import parse_size
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.bisection import Trial, bisect
from otel_memwatch.wings.advice.recommendation import mebibytes
from otel_memwatch.wings.advice.sizes import LEAST_REQUEST
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench.bench_enough import JOBS, READ, SPILL, _json, prepare, script, tried

LAYERS = """
import mmap
file = open("big", "rb")
map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for token in range(8):
    for layer in range(16):
        for at in range(layer << 24, (layer + 1) << 24, 4096):
            map[at]
"""
LRU = """
import os, random
file = os.open("big", os.O_RDONLY)
lots = random.Random(1)
for _ in range(120_000):
    os.pread(file, 4096, int(lots.betavariate(1, 8) * (200 << 20)))
"""

PROGRAMS: dict[str, list[str]] = {
    "map, random": JOBS["mapped file, random"],
    "map, in order": JOBS["mapped file, in order"],
    "sqlite": ["sqlite3", "old.db", READ],
    "spilling sort": script(SPILL),
    "weights by layer": script(LAYERS),
    "git": JOBS["git repack"],
    "compile": JOBS["g++"],
    "cache in a file": script(LRU),
    "python imports": script("import email, http.server, xml.dom.minidom, unittest.mock, asyncio, sqlite3, ssl, numpy, pandas"),
    "copy": JOBS["copy"],
    "scan": JOBS["scan"],
    "cold start": ["java", "-version"],
}  # fmt: skip
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05)
"""Limits as shares of the knee."""
FULL_SPEED, SLOW, NOT_SLOWED = 0.95, 1.5, 1.05
LEAST_SECONDS = 0.05
"""Seconds that two runs of a program differ by in any case."""


class Verdict(NamedTuple):
    """One run under a share of the knee."""

    share: float
    slowed: float
    """Its time over that without a limit; infinite: it hung or was killed."""
    recognized: bool


def slowed(trial: Trial, alone: Trial) -> float:
    """Return the factor by which a run was slower; infinite if it did not end as usual."""
    whole = not trial.hung and trial.row is not None and not trial.row.exit_code and not trial.row.oom_kills
    if not whole or not trial.seconds or not alone.seconds:
        return float("inf")
    return max(0.0, trial.seconds - LEAST_SECONDS) / alone.seconds


def recognized(trial: Trial) -> bool:
    """Return whether the run was called short of memory, killed or hanging."""
    return (
        trial.hung
        or trial.row is None
        or trial.row.short_of_memory
        or bool(trial.row.oom_kills or trial.row.exit_code)
    )


def measure(name: str, work: Path, repeat: int) -> tuple[int, int | None, list[Verdict]] | None:
    """Return advice and knee in MiB, and the verdicts; `None`: the program fails without a limit."""
    row = IndexedRun(
        "", name, "finished", command_json=_json(PROGRAMS[name]), mode="wrap", cwd=str(work), name=name
    )
    files: set[str] = set()
    tried(row, 0, files, [])  # shows its files
    trials = [tried(row, 0, files, []) for _ in range(repeat)]
    alone = min(trials, key=lambda one: one.seconds or 1e9)
    if alone.row is None or alone.row.exit_code:
        return None
    (advice,) = advise([alone.row._replace(name=name)], by=job_of)

    def suffices(limit: int) -> bool:
        return any(slowed(tried(row, limit, files, [alone]), alone) <= 1 / FULL_SPEED for _ in range(repeat))

    full = mebibytes(advice.full_speed or 0)
    knee = bisect(max(4, mebibytes(alone.row.low or 0) // 2), full, suffices).enough
    if knee is None:
        return full, None, []
    found = []
    for share in SHARES:
        for _ in range(repeat):
            trial = tried(row, max(4, round(share * knee)), files, [alone])
            found.append(Verdict(share, slowed(trial, alone), recognized(trial)))
    return full, knee, found


def limit_reads(work: Path, bytes_in_a_second: int) -> None:
    """Move this process into a cgroup that limits its reads from the disk of a directory."""
    group = Path(f"/sys/fs/cgroup/blkio/memwatch-knee-{os.getpid()}")
    group.mkdir()
    device = work.stat().st_dev
    limit = f"{os.major(device)}:{os.minor(device)} {bytes_in_a_second}"
    (group / "blkio.throttle.read_bps_device").write_text(limit)
    (group / "cgroup.procs").write_text(str(os.getpid()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work")
    parser.add_argument("--disk", type=parse_size)
    asked = parser.parse_args()
    names = [name.strip() for name in asked.only.split(";") if name.strip()] or list(PROGRAMS)
    work = Path(asked.work or tempfile.mkdtemp(prefix="memwatch-knee-")).resolve()
    work.mkdir(exist_ok=True)
    if not (work / "big").exists():
        prepare(work)
    if asked.disk:
        limit_reads(work, asked.disk)
    os.environ["OTEL_MEMWATCH_RUNS"] = str(work / "runs")
    print(
        f"{'program':20}{'knee':>6}{'advice':>8}{'ratio':>7}{'slow runs':>11}{'found':>7}{'quick runs':>12}{'false':>7}",
        flush=True,
    )
    ratios, every = [], []
    for name in names:
        if shutil.which(PROGRAMS[name][0]) is None:
            continue
        found = measure(name, work, asked.repeat)
        if found is None or found[1] is None:
            print(
                f"{name:20}{'fails without a limit' if found is None else 'no knee up to four times the advice'}",
                flush=True,
            )
            continue
        advice, knee, verdicts = found
        assert knee is not None
        ratios.append(advice / max(knee, mebibytes(LEAST_REQUEST)))
        every += verdicts
        print(f"{name:20}{knee:6}{advice:8}{ratios[-1]:7.2f}{_counts(verdicts)}", flush=True)
    within = sum(1.0 <= ratio <= 1.25 for ratio in ratios)
    print(f"{'all':20}{'':21}{_counts(every)}")
    print(
        f"advice is 1.00 to 1.25 times the knee for {within} of {len(ratios)} programs, below 0.95 for {sum(r < 0.95 for r in ratios)}"
    )
    if not asked.work:
        shutil.rmtree(work, ignore_errors=True)


def _counts(verdicts: list[Verdict]) -> str:
    slow = [one for one in verdicts if one.slowed >= SLOW]
    quick = [one for one in verdicts if one.slowed < NOT_SLOWED]
    return f"{len(slow):11}{sum(one.recognized for one in slow):7}{len(quick):12}{sum(one.recognized for one in quick):7}"


if __name__ == "__main__":
    main()

"""Advice and verdicts against the true knee: the smallest limit with at least 95 % of a program's speed.

    python -m tests.bench.bench_knee [--only "NAME; ..."] [--knees [--save] | --stored] [--repeat 3] [--work DIR] [--disk 60MB]
        [--quick N --seed S]

Each of twelve programs with a known working set and ten real ones runs from a cold page cache:

1. without a limit: the advice is based on this run
2. under limits chosen by bisection, `--repeat` times each; the run that loses least counts. Our verdict decides nothing here
3. under 40 to 105 % of the knee: a run that took 1.5 times as long, hung or was killed has to be called short of memory or
   killed; a run slowed by less than 5 % must not be

`--knees` leaves out step 3, and `--save` keeps its rows for README; with `--only` it renews these programs alone. `--stored` takes
the kept knees and leaves out step 2; with `--knees --save` it renews the advice beside them.
`--quick` runs scans, copies and starts under random limits instead, from half of the advice to none. It counts the verdicts on runs
that were slowed by less than 5 %.

A wall clock finds no knee beside other programs: times of one run differ by a factor of three. So a limit costs no more than each
of three measurements (`lost`): the run's time less its waiting for a processor, the kernel's stalls of a cgroup with the run and
nothing else, and the CPU time. The second needs a cgroup2 mount without the memory controller beside version 1. Elsewhere the
first decides alone, and the machine has to be quiet. A limit that the charge did not reach costs nothing.

Goals: full-speed advice is 1.00 to 1.25 times the knee in 19 of 20 cases, at least 95 % of the slow runs are recognized, and at
most 1 % of the others are called slow. A knee below the smallest request of schedulers counts as that. Needs a memory hierarchy
that it may make groups in. `--disk` limits the reads in a second from the disk of `--work`; it needs version 1 of the blkio controller.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.units import parse_size
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.bisection import Knee, Trial, bisect
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
    **{name: JOBS[name] for name in (
        "rustc", "ffmpeg", "pandas", "pytorch", "postgres", "chromium", "javac", "ripgrep", "r", "git log")},
}  # fmt: skip
RESULTS = Path(__file__).parent / "results/knees.json"
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05)
"""Limits as shares of the knee."""
FULL_SPEED, SLOW, NOT_SLOWED = 0.95, 1.5, 1.05
LEAST_SECONDS = 0.05
"""Seconds that two runs of a program differ by in any case."""
READ_AGAIN = 1.02
"""Bytes read over those without a limit, above which the run read something again."""
WROTE = 16 << 20
"""Bytes written from which a run may wait for its data to reach the disk."""
FINE = 1.03
"""Ratio of the two limits around a knee."""
QUICK = ("copy", "scan", "cold start", "python imports", "cache in a file")


class Pressure:
    """Stalls of a cgroup2 that holds this process and the runs, and nothing else; nothing without such a hierarchy."""

    def __init__(self) -> None:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        unified = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
        self._group: Path | None = None
        if unified is not None and "memory" not in (unified / "cgroup.controllers").read_text().split():
            self._group, self._before = unified / f"memwatch-knee-{os.getpid()}", unified
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def read(self) -> tuple[float, float, float] | None:
        """Return seconds so far: any task stalled for memory, any for storage, and all waiting for a processor."""
        if self._group is None:
            return None
        found = []
        for resource, kind in (("memory", "some"), ("io", "some"), ("cpu", "full")):
            lines = (self._group / f"{resource}.pressure").read_text().splitlines()
            found.append(next(int(line.split("total=")[1]) / 1e6 for line in lines if line.startswith(kind)))
        return found[0], found[1], found[2]

    def close(self) -> None:
        """Leave the cgroup."""
        if self._group is not None:
            (self._before / "cgroup.procs").write_text(str(os.getpid()))
            self._group.rmdir()


class Run(NamedTuple):
    """A trial, with the seconds in which it stalled."""

    trial: Trial
    stalls: tuple[float, float, float] | None
    """For memory, for storage, and for a processor; `None`: not measured."""

    @property
    def seconds(self) -> float:
        """Duration, less the waiting for a processor."""
        taken = self.trial.seconds or 1e9
        return taken if self.stalls is None else max(LEAST_SECONDS, taken - self.stalls[2])

    @property
    def read(self) -> int:
        """Bytes read from storage."""
        return (self.trial.row.read or 0) if self.trial.row is not None else 0

    def reads_again(self, alone: Run) -> bool:
        """Return whether the run read more than one without a limit."""
        return self.read > READ_AGAIN * alone.read + (1 << 20)


def run(pressure: Pressure, row: IndexedRun, limit: int, files: set[str], before: list[Run]) -> Run:
    """Run a program under a limit in MiB, and measure its stalls."""
    os.sync()
    begun, first = time.monotonic(), pressure.read()
    trial = tried(row, limit, files, [one.trial for one in before])
    last = pressure.read()
    if first is None or last is None:
        return Run(trial, None)
    # The monitor waits for a processor as well, before and after the run.
    contention = (last[2] - first[2]) / (time.monotonic() - begun) * (trial.seconds or 0.0)
    return Run(trial, (last[0] - first[0], last[1] - first[1], contention))


def lost(limited: Run, alone: Run) -> float:
    """Return the share of a run's time that a limit cost, at most.

    | measurement | alone it is too high, because |
    | --- | --- |
    | time less waiting for a processor | other programs use caches, the other thread of a core, and the disk |
    | stalls for memory, as a share of the time | reclaimed pages are in caches, so a scan at its limit saves what reclaim costs |
    | stalls for storage, if more was read than without a limit | the disk is busy |
    | CPU time, if nothing was read again and little written | other programs use caches |

    Stalls for memory and for storage overlap, so the larger of these two counts. Stalls for memory also include reclaim that waits
    for a processor. They are a share of the time without such waiting: as a share of all of it, Python's imports
    lost 7 to 16 % at 80 MiB beside other programs, where they took 1.3 to 2.5 times as long and read four times as much.
    """
    if limited.trial.is_free:
        return 0.0
    longer = max(0.0, 1 - (alone.seconds + (0 if alone.stalls else LEAST_SECONDS)) / limited.seconds)
    if limited.stalls is None or alone.stalls is None:
        return longer
    again = limited.reads_again(alone)
    storage = (limited.stalls[1] - alone.stalls[1]) / limited.seconds if again else 0.0
    found = min(longer, max(limited.stalls[0] / limited.seconds, storage))
    rows = limited.trial.row, alone.trial.row
    if again or rows[0] is None or rows[1] is None or (rows[0].written or 0) > WROTE:
        return found
    return min(found, max(0.0, (rows[0].cpu or 0.0) - (rows[1].cpu or 0.0)) / limited.seconds)


class Verdict(NamedTuple):
    """One run under a share of the knee."""

    share: float
    slowed: float
    """Its time over that without a limit; infinite: it hung or was killed."""
    recognized: bool


def slowed(limited: Run, alone: Run) -> float:
    """Return the factor by which a limit made a run slower; infinite if it did not end as usual."""
    trial = limited.trial
    whole = not trial.hung and trial.row is not None and not trial.row.exit_code and not trial.row.oom_kills
    if not whole or not trial.seconds:
        return float("inf")
    return 1 / max(1e-3, 1 - lost(limited, alone))


def recognized(trial: Trial) -> bool:
    """Return whether the run was called short of memory, killed or hanging."""
    return (
        trial.hung
        or trial.row is None
        or trial.row.short_of_memory
        or bool(trial.row.oom_kills or trial.row.exit_code)
    )


def row_of(name: str, work: Path) -> IndexedRun:
    """Return the row of a program's run that has not taken place."""
    return IndexedRun(
        "", name, "finished", command_json=_json(PROGRAMS[name]), mode="wrap", cwd=str(work), name=name
    )


def without_limit(
    pressure: Pressure, row: IndexedRun, repeat: int, files: set[str]
) -> tuple[Run, int] | None:
    """Return the quickest run without a limit, and its advice in MiB; `None`: the program fails."""
    run(pressure, row, 0, files, [])  # shows its files
    alone = min((run(pressure, row, 0, files, []) for _ in range(2 * repeat)), key=lambda one: one.seconds)
    if alone.trial.row is None or alone.trial.row.exit_code:
        return None
    (advice,) = advise([alone.trial.row._replace(name=row.name)], by=job_of)
    return alone, mebibytes(advice.full_speed or 0)


def measure(
    pressure: Pressure, name: str, work: Path, repeat: int, shares: tuple[float, ...], stored: int | None
) -> tuple[int, Knee, list[Verdict]] | None:
    """Return advice and knee in MiB, and the verdicts; `None`: the program fails without a limit.

    `stored`: knee that is known.
    """
    row, files = row_of(name, work), set[str]()
    started = without_limit(pressure, row, repeat, files)
    if started is None:
        return None
    alone, full = started

    def suffices(limit: int) -> bool:
        return any(
            slowed(run(pressure, row, limit, files, [alone]), alone) <= 1 / FULL_SPEED for _ in range(repeat)
        )

    assert alone.trial.row is not None
    knee = Knee(stored, None)
    if stored is None:
        knee = bisect(max(4, mebibytes(alone.trial.row.low or 0) // 2), full, suffices, fine=FINE)
    found = []
    for share in shares if knee.enough else ():
        for _ in range(repeat):
            one = run(pressure, row, max(4, round(share * (knee.enough or 0))), files, [alone])
            found.append(Verdict(share, slowed(one, alone), recognized(one.trial)))
    return full, knee, found


def quick(pressure: Pressure, work: Path, number: int, seed: int) -> None:
    """Print how many of so many runs were slowed by less than 5 %, and how many of these were called slow.

    Beside other programs, times do not show a loss of 5 %. So a quick run that read more than without a limit is no evidence.
    """
    lots = random.Random(seed)
    files: dict[str, set[str]] = {name: set() for name in QUICK}
    started = {name: without_limit(pressure, row_of(name, work), 3, files[name]) for name in QUICK}
    found, unclear = [], 0
    for at in range(number):
        name = lots.choice([name for name in QUICK if started[name]])
        alone, full = started[name] or (None, 0)
        assert alone is not None
        limit = lots.choice([0, round(full * lots.uniform(0.5, 2.5))])
        one = run(pressure, row_of(name, work), limit, files[name], [alone])
        if not limit and one.seconds < alone.seconds:
            started[name] = one, full
        verdict = Verdict(limit / full, slowed(one, alone), recognized(one.trial))
        if verdict.slowed < NOT_SLOWED and one.reads_again(alone):
            unclear += 1
        else:
            found.append(verdict)
            if verdict.recognized and verdict.slowed < NOT_SLOWED:
                starved = one.trial.row.starved if one.trial.row is not None else None
                print(f"false: {name} in {limit} MiB, {one.seconds:.2f} s, called {starved}", flush=True)
        if at % 50 == 49 or at == number - 1:
            quick_runs = [one for one in found if one.slowed < NOT_SLOWED]
            slow = [one for one in found if one.slowed >= SLOW]
            print(
                f"{at + 1} runs: {len(quick_runs)} slowed by less than 5 %, {sum(one.recognized for one in quick_runs)} of them called"
                f" slow; {unclear} unclear; {len(slow)} slowed 1.5 times, {sum(one.recognized for one in slow)} of them called slow",
                flush=True,
            )


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
    parser.add_argument("--knees", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work")
    parser.add_argument("--disk", type=parse_size)
    parser.add_argument("--quick", type=int)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    names = [name.strip() for name in asked.only.split(";") if name.strip()] or list(PROGRAMS)
    work = Path(asked.work or tempfile.mkdtemp(prefix="memwatch-knee-")).resolve()
    work.mkdir(exist_ok=True)
    if not (work / "big").exists():
        prepare(work)
    if asked.disk:
        limit_reads(work, asked.disk)
    os.environ["OTEL_MEMWATCH_RUNS"] = str(work / "runs")
    pressure = Pressure()
    try:
        if asked.quick:
            quick(pressure, work, asked.quick, asked.seed)
        else:
            kept = json.loads(RESULTS.read_text())
            stored = kept if asked.stored else {}
            knees = table(pressure, names, work, asked.repeat, () if asked.knees else SHARES, stored)
            if asked.save:
                RESULTS.write_text(json.dumps({**kept, **knees}, indent=1) + "\n")
    finally:
        pressure.close()
        if not asked.work:
            shutil.rmtree(work, ignore_errors=True)


def table(
    pressure: Pressure,
    names: list[str],
    work: Path,
    repeat: int,
    shares: tuple[float, ...],
    stored: dict[str, tuple[int, int]],
) -> dict[str, tuple[int, int]]:
    """Print advice, knee and verdicts of each program; return knee and advice in MiB.

    The knee is between two limits; the larger one counts. `stored`: knees that are known.
    """
    heads = "| program | too little, MiB | knee, MiB | full-speed advice, MiB | ratio | slow runs, found | quick runs, called slow |"
    print(heads, "| --- |" + " ---: |" * 6, sep="\n", flush=True)
    knees, every = {}, []
    for name in names:
        if shutil.which(PROGRAMS[name][0]) is None:
            continue
        found = measure(pressure, name, work, repeat, shares, stored[name][0] if name in stored else None)
        if found is None or found[1].enough is None:
            print(
                f"| {name} | {'fails without a limit' if found is None else 'no knee up to four times the advice'} |",
                flush=True,
            )
            continue
        advice, knee, verdicts = found
        knees[name] = found[1].enough, advice
        every += verdicts
        print(
            f"| {name} | {knee.less or '-'} | {knee.enough} | {advice} | {ratio(*knees[name]):.2f} | {_counts(verdicts)} |",
            flush=True,
        )
    print(f"| all | | | | | {_counts(every)} |", summary(knees), sep="\n\n")
    return knees


def ratio(knee: int, advice: int) -> float:
    """Return advice over knee."""
    return round(advice / max(knee, mebibytes(LEAST_REQUEST)), 2)


def summary(knees: dict[str, tuple[int, int]]) -> str:
    """Return the number of programs with good advice in words."""
    ratios = [ratio(*one) for one in knees.values()]
    return (
        f"Advice is 1.00 to 1.25 times the knee for {sum(1 <= one <= 1.25 for one in ratios)} of {len(ratios)} programs, below 0.95"
        f" for {sum(one < 0.95 for one in ratios)}, and between {min(ratios):.2f} and {max(ratios):.2f}."
    )


def stated() -> str:
    """Return the summary of the stored knees for docs/benchmarks.md, with the programs beyond the goal."""
    knees = json.loads(RESULTS.read_text())
    beyond = [f"{name} {found:.2f}" for name, one in knees.items() if not 1 <= (found := ratio(*one)) <= 1.25]
    return f"{summary(knees)} The others: {', '.join(beyond)}."


def markdown(columns: int = 8) -> str:
    """Return the stored knees for README, several programs in a row."""
    knees = json.loads(RESULTS.read_text())
    cells = [
        f"{name}: {knee} → {advice} ({ratio(knee, advice):.2f})" for name, (knee, advice) in knees.items()
    ]
    cells += [""] * (-len(cells) % columns)
    rows = [cells[at : at + columns] for at in range(0, len(cells), columns)]
    rows[:0] = ["knee → advice, MiB (ratio)", *[""] * (columns - 1)], ["---"] * columns
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _counts(verdicts: list[Verdict]) -> str:
    slow = [one for one in verdicts if one.slowed >= SLOW]
    quick = [one for one in verdicts if one.slowed < NOT_SLOWED]
    return " | ".join(f"{len(runs)}, {sum(one.recognized for one in runs)}" for runs in (slow, quick))


if __name__ == "__main__":
    main()

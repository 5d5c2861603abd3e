"""Advice and verdicts against the true knee: the smallest limit with at least 95 % of a program's speed.

    python -m tests.bench.bench_knee [--only "NAME; ..."] [--knees [--save] | --stored] [--repeat 3] [--work DIR] [--disk 60MB]
        [--quick N --seed S]

Each of twelve programs with a known working set and ten real ones runs from a cold page cache:

1. without a limit: one advice is based on the quickest of these runs, and one on three of them
2. under limits chosen by bisection, `--repeat` times each; the run that loses least counts. Our verdict decides nothing here
3. under 40 to 105 % of the knee: a run that took 1.5 times as long, hung or was killed has to be called short of memory or
   killed; a run slowed by less than 5 % must not be

`--knees` leaves out step 3, and `--save` keeps its rows for README; with `--only` it renews these programs alone. `--stored` takes
the kept knees and leaves out step 2; with `--knees --save` it renews the advice beside them.
`--quick` runs scans, copies and starts under random limits instead, from half of the advice to none. It counts the verdicts on runs
that were slowed by less than 5 %.

A wall clock finds no knee beside other programs: times of one run differ by a factor of three. So a limit costs no more than each
of three measurements (`lost`): the run's time less its waiting for a processor, the kernel's stalls of a cgroup with the run and
nothing else, and what it took more of CPU time and of the disk. The second needs a cgroup2 mount without the memory controller beside version 1. Elsewhere the
first decides alone, and the machine has to be quiet. A limit that the charge did not reach costs nothing.

Goals: full-speed advice is 1.00 to 1.25 times the knee in 19 of 20 cases, at least 95 % of the slow runs are recognized, and at
most 1 % of the others are called slow. A knee below the smallest request of schedulers counts as that. Needs a memory hierarchy
that it may make groups in. `--disk` limits the reads in a second from the disk of `--work`; it needs version 1 of the blkio controller.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.units import parse_size
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.bisection import Knee, bisect
from otel_memwatch.wings.advice.recommendation import mebibytes
from otel_memwatch.wings.advice.sizes import LEAST_REQUEST
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench.bench_enough import JOBS, READ, SPILL, _json, prepare, script
from tests.bench.knee_runs import Pressure, Run, Verdict, limited_reads, run, verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_RUNS = 3
"""Runs of the second advice."""
_PAIRS = 3
"""Further runs under a limit, and without one, of a program that wrote and seems slow."""
FULL_SPEED = 0.95
COLD = 0.9
"""Share of the bytes that a program reads from a cold page cache."""
FINE = 1.03
"""Ratio of the two limits around a knee."""
QUICK = ("copy", "scan", "cold start", "python imports", "cache in a file")


def row_of(name: str, work: Path) -> IndexedRun:
    """Return the row of a program's run that has not taken place."""
    return IndexedRun(
        "", name, "finished", command_json=_json(PROGRAMS[name]), mode="wrap", cwd=str(work), name=name
    )


def without_limit(
    pressure: Pressure, row: IndexedRun, repeat: int, files: set[str]
) -> tuple[Run, int, int] | None:
    """Return the quickest run without a limit, its advice in MiB, and that of three runs; `None`: the program fails.

    A run that finds files in memory which it maps, because another program maps them too, shows too little.
    """
    run(pressure, row, 0, files, [])  # shows its files
    runs = [run(pressure, row, 0, files, []) for _ in range(max(_RUNS, 2 * repeat))]
    cold = [one for one in runs if one.read >= COLD * max(other.read for other in runs)]
    alone = min(cold, key=lambda one: one.seconds)
    rows = [
        one.trial.row._replace(name=row.name)
        for one in (alone, *(other for other in cold if other is not alone))
        if one.trial.row is not None and not one.trial.row.exit_code
    ]
    if not alone.is_whole or not rows:
        return None
    one_run, all_runs = (advise(some, by=job_of)[0].full_speed for some in (rows[:1], rows[:_RUNS]))
    return alone, mebibytes(one_run or 0), mebibytes(all_runs or 0)


def measure(
    pressure: Pressure, name: str, work: Path, repeat: int, shares: tuple[float, ...], stored: int | None
) -> tuple[tuple[int, int], Knee, list[Verdict]] | None:
    """Return both advices and the knee in MiB, and the verdicts; `None`: the program fails without a limit.

    `stored`: knee that is known.
    """
    row, files = row_of(name, work), set[str]()
    started = without_limit(pressure, row, repeat, files)
    if started is None:
        return None
    alone, full, of_several = started

    quickest = alone.seconds

    def tried_at(limit: int) -> Verdict:
        nonlocal quickest
        one = run(pressure, row, limit, files, [alone])
        if one.is_whole and one.read < COLD * alone.read:  # another program maps the files
            one = run(pressure, row, limit, files, [alone])
        quickest = min(quickest, one.seconds) if one.is_whole else quickest
        return reviewed(pressure, row, files, verdict_of(one, alone, quickest), one)

    def suffices(limit: int) -> bool:
        return any(tried_at(limit).slowed <= 1 / FULL_SPEED for _ in range(repeat))

    assert alone.trial.row is not None
    knee = Knee(stored, None)
    if stored is None:
        knee = bisect(max(4, mebibytes(alone.trial.row.low or 0) // 2), full, suffices, fine=FINE)
    limits = [max(4, round(share * (knee.enough or 0))) for share in shares] if knee.enough else []
    found = [tried_at(limit) for limit in limits for _ in range(repeat)]
    for one in found:
        if one.is_wrong:
            print(f"{name} {one.words}", flush=True)
    return (full, of_several), knee, found


def reviewed(pressure: Pressure, row: IndexedRun, files: set[str], verdict: Verdict, one: Run) -> Verdict:
    """Return the verdict; if a run wrote and seems slow, that on the run of median slowdown next to runs without a limit.

    The disk takes different times to write the same data: a copy without a limit took 0.25 to 1.08 s.
    """
    if not (verdict.is_slow and one.is_whole and one.wrote):
        return verdict
    found = []
    for _ in range(_PAIRS):
        alone = run(pressure, row, 0, files, [])
        found.append(verdict_of(run(pressure, row, verdict.limit, files, [alone]), alone, alone.seconds))
    return sorted(found, key=lambda pair: pair.slowed)[_PAIRS // 2]


def quick(pressure: Pressure, names: Sequence[str], work: Path, number: int, seed: int) -> None:
    """Print how many of so many runs were slowed by less than 5 %, and how many of these were called slow."""
    lots = random.Random(seed)
    files: dict[str, set[str]] = {name: set() for name in names}
    started = {name: without_limit(pressure, row_of(name, work), 3, files[name]) for name in names}
    found = []
    for at in range(number):
        name = lots.choice([name for name in names if started[name]])
        alone, full, of_several = started[name] or (None, 0, 0)
        assert alone is not None
        limit = lots.choice([0, round(full * lots.uniform(0.5, 2.5))])
        one = run(pressure, row_of(name, work), limit, files[name], [alone])
        if not limit and one.seconds < alone.seconds:
            started[name] = one, full, of_several
        verdict = reviewed(
            pressure, row_of(name, work), files[name], verdict_of(one, alone, alone.seconds), one
        )
        found.append(verdict)
        if verdict.is_wrong:
            print(f"false: {name} {verdict.words}", flush=True)
        if at % 50 == 49 or at == number - 1:
            slow, quick_runs, unclear = _counted(found)
            print(
                f"{at + 1} runs: {quick_runs} of those slowed by less than 5 % called slow; {unclear} unclear; {slow} of those slowed"
                " 1.5 times called slow",
                flush=True,
            )


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
    os.environ["OTEL_MEMWATCH_RUNS"] = str(work / "runs")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its cgroups are removed
    try:
        print(conditions(), flush=True)
        with limited_reads(work, asked.disk), contextlib.closing(Pressure(asked.disk)) as pressure:
            if asked.quick:
                quick(pressure, names if asked.only else QUICK, work, asked.quick, asked.seed)
                return
            kept = json.loads(RESULTS.read_text())
            stored = kept if asked.stored else {}
            knees = table(pressure, names, work, asked.repeat, () if asked.knees else SHARES, stored)
            if asked.save:
                RESULTS.write_text(json.dumps({**kept, **knees}, indent=1) + "\n")
    finally:
        if not asked.work:
            shutil.rmtree(work, ignore_errors=True)


def conditions() -> str:
    """Return conditions of the machine that move knees: the load, and huge pages for all programs."""
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = huge.read_text().strip() if huge.exists() else "unknown"
    return f"load {os.getloadavg()[0]:.1f}; transparent huge pages: {mode}"


def table(
    pressure: Pressure,
    names: list[str],
    work: Path,
    repeat: int,
    shares: tuple[float, ...],
    stored: dict[str, Sequence[int]],
) -> dict[str, Sequence[int]]:
    """Print advice, knee and verdicts of each program; return knee and both advices in MiB.

    The knee is between two limits; the larger one counts. `stored`: knees that are known.
    """
    heads = "| program | too little, MiB | knee, MiB | full-speed advice, MiB | ratio | of three runs | ratio | slow runs, found | quick ones, called slow | unclear ones, called slow |"
    print(heads, "| --- |" + " ---: |" * 9, sep="\n", flush=True)
    knees: dict[str, Sequence[int]] = {}
    every = []
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
        advices, knee, verdicts = found
        knees[name] = found[1].enough, *advices
        every += verdicts
        cells = " | ".join(f"{advice} | {ratio(found[1].enough, advice):.2f}" for advice in advices)
        print(
            f"| {name} | {knee.less or '-'} | {knee.enough} | {cells} | {' | '.join(_counted(verdicts))} |",
            flush=True,
        )
    print(f"| all | | | | | | | {' | '.join(_counted(every))} |", *summaries(knees), sep="\n\n")
    return knees


def ratio(knee: int, advice: int) -> float:
    """Return advice over knee."""
    return advice / max(knee, mebibytes(LEAST_REQUEST))


def summaries(knees: dict[str, Sequence[int]]) -> list[str]:
    """Return the number of programs with good advice in words: of one run and of three."""
    found = []
    for place, runs in ((1, "one run"), (2, "three runs")):
        ratios = {name: ratio(one[0], one[place]) for name, one in knees.items() if len(one) > place}
        if not ratios:
            continue
        beyond = [f"{name} {one:.2f}" for name, one in ratios.items() if not 1 <= one <= 1.25]
        found.append(
            f"Advice from {runs} is 1.00 to 1.25 times the knee for {len(ratios) - len(beyond)} of {len(ratios)} programs, below 0.95 for"
            f" {sum(one < 0.95 for one in ratios.values())}, and between {min(ratios.values()):.2f} and {max(ratios.values()):.2f}."
            + (f" The others: {', '.join(beyond)}." if beyond else "")
        )
    return found


def stated() -> str:
    """Return the summaries of the stored knees for docs/benchmarks.md."""
    return "\n\n".join(summaries(json.loads(RESULTS.read_text())))


def markdown(columns: int = 8) -> str:
    """Return the stored knees for README, several programs in a row."""
    knees = json.loads(RESULTS.read_text())
    cells = [
        f"{name}: {knee} → {advice} ({ratio(knee, advice):.2f})" for name, (knee, advice, *_) in knees.items()
    ]
    cells += [""] * (-len(cells) % columns)
    rows = [cells[at : at + columns] for at in range(0, len(cells), columns)]
    rows[:0] = ["knee → advice, MiB (ratio)", *[""] * (columns - 1)], ["---"] * columns
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _counted(verdicts: list[Verdict]) -> list[str]:
    """Return how many runs of three kinds were called slow: slow, quick and unclear ones."""
    kinds = (
        [one for one in verdicts if one.is_slow],
        [one for one in verdicts if one.is_quick],
        [one for one in verdicts if one.is_unclear],
    )
    return [f"{sum(one.recognized for one in runs)} of {len(runs)}" for runs in kinds]


if __name__ == "__main__":
    main()

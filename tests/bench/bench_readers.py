"""Costs of reading records, beside their budgets and, with --beside, beside another checkout.

    python tests/bench/bench_readers.py [--beside CHECKOUT] [--rounds 2] [--ticks 108000] [--runs 10000] [--operations 50000]

Takes three to five minutes with the defaults, on one processor. Figures are CPU seconds, the least of the rounds, since other
work on the machine only adds to them. With --beside, both checkouts read the same records in turns with this interpreter, and
the last column is the median ratio of the pairs.

Budgets of a day at 10 Hz (864 000 samples): 10 s and 500 MiB for each output. Fewer samples have their share of the seconds, and
loading matplotlib for a plot counts in full: judge that one with --ticks 864000.
Budgets of 10 000 runs: 3 s cold, 0.2 s warm, 100 MiB. Budget of any number of operations: 64 MiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.record.format import INDEX_FILE
from tests.bench import bench_index, bench_many_operations, bench_offline
from tests.support import recorded

HERE = Path(__file__).parents[2]


class Reader(NamedTuple):
    """One command and its budget; `None`: none."""

    name: str
    words: tuple[str, ...]
    seconds: float | None = None
    mebibytes: float | None = None
    forget: Path | None = None
    """File to remove before each run."""
    again: bool = False
    """True to measure the second of two runs: the first fills the cache, whose format differs between checkouts."""


def readers(folder: Path, ticks: int, runs: int, operations: int) -> list[Reader]:
    """Make the three records and return the commands that read them."""
    day, many = str(folder / "day"), str(folder / "many")
    bench_offline.widen(recorded.day(Path(day), ticks=ticks))
    bench_index.build(folder, runs)
    subprocess.run(
        [
            *bench_many_operations.PROGRAM, "wrap", "--quiet", "--no-plot", "--no-report", "--out", many, "--",
            sys.executable, "-c", bench_many_operations.MARKS, str(folder / "note"), str(operations), "0",
        ],
        check=True, cwd=HERE,
    )  # fmt: skip
    listed, seconds = str(folder / "runs"), 10 * ticks / bench_offline.DAY
    cache, share = folder / "runs" / INDEX_FILE, runs / 10_000
    condition = "tag.rule=rule3 and peak>1MiB"
    return [
        Reader(
            "page of a day",
            ("report", day, "--html", f"{folder}/day.html"),
            seconds,
            500,
            folder / "day.html",
        ),
        Reader("report of a day", ("report", day), seconds, 500),
        Reader("report --json of a day", ("report", "--json", day), seconds, 500),
        Reader("plot of a day", ("plot", day, "-o", f"{folder}/day.png"), seconds, 500, folder / "day.png"),
        Reader("runs, cold", ("runs", listed, "--last", "20"), 3 * share, 100, cache),
        Reader("runs, warm", ("runs", listed, "--last", "20"), 0.2 * share, 100, again=True),
        Reader("runs --where", ("runs", listed, "--where", condition, "--last", "20"), again=True),
        Reader("advise", ("advise", listed, "--by", "name", "--for", "json"), again=True),
        Reader("report of operations", ("report", many)),
        Reader("report --json of operations", ("report", "--json", many), None, 64),
    ]


def measure(checkout: Path, words: tuple[str, ...]) -> tuple[float, float]:
    """Return CPU seconds and peak MiB of one command of a checkout."""
    # `python -m` imports from the working directory first.
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_memwatch", *words], cwd=checkout, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (checkout, words)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def line(reader: Reader, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> str:
    """Return the figures of one command."""
    seconds, mebibytes = min(one[0] for one in ours), max(one[1] for one in ours)
    text = f"{reader.name:28}{seconds:7.2f} s {mebibytes:6.0f} MiB"
    parts = [
        f"{value / budget:.2f} of {budget:.3g} {unit}"
        for value, budget, unit in ((seconds, reader.seconds, "s"), (mebibytes, reader.mebibytes, "MiB"))
        if budget is not None
    ]
    if theirs:
        ratio = statistics.median(mine[0] / other[0] for mine, other in zip(ours, theirs, strict=True))
        parts.append(f"{ratio:.2f} times {min(one[0] for one in theirs):.2f} s")
    return "; ".join([text, *parts])


def main() -> None:
    """Print one line for each command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ticks", type=int, default=bench_offline.DAY // 8)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--operations", type=int, default=50_000)
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    checkouts = [HERE] if given.beside is None else [HERE, given.beside.resolve()]
    with tempfile.TemporaryDirectory() as folder:
        for reader in readers(Path(folder), given.ticks, given.runs, given.operations):
            taken: list[list[tuple[float, float]]] = [[] for _ in checkouts]
            for number in range(given.rounds):
                for at in list(range(len(checkouts)))[:: -1 if number % 2 else 1]:
                    if reader.forget is not None:
                        reader.forget.unlink(missing_ok=True)
                    if reader.again:
                        measure(checkouts[at], reader.words)
                    taken[at].append(measure(checkouts[at], reader.words))
            print(line(reader, taken[0], [] if len(taken) == 1 else taken[1]), flush=True)


if __name__ == "__main__":
    main()

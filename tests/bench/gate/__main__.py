"""How often the gate is wrong.

    python -m tests.bench.gate record [--runs 40] [--file FILE]   records the programs, in turns
    python -m tests.bench.gate table  [--comparisons 5000] [--file FILE]

`record` takes about ten minutes on an idle machine with two processors. What it keeps are figures, no command lines:
`results/runs.json` holds those of the machine that the figures in the manual are from. `table` draws the runs of either side by lot
from those that are recorded, without putting back; the drawn comparisons share runs, so their shares are no surer than
the number of recorded runs makes them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from otel_memwatch.run import load
from otel_memwatch.run.figures import MEMORY, RunFigures, figures_of
from otel_memwatch.wings.gate import baseline
from otel_memwatch.wings.gate.comparison import ComparisonVerdict, compare
from tests.bench.gate.programs import ALONE, PROGRAMS

RESULTS = Path(__file__).parent / "results" / "runs.json"
GROWN = {"json": (1.01, 1.02), "text": (1.01, 1.02), "pool": (1.15,)}
"""Factors by which programs are recorded larger than they were."""

SIZES = ((1, 1), (1, 5), (3, 3), (5, 5), (12, 12))
"""Runs of the base and of the head."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate")
    parser.add_argument("action", choices=["record", "table"])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--comparisons", type=int, default=5000)
    parser.add_argument("--file", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    if chosen.action == "record":
        record(chosen.file, chosen.runs)
        return 0
    found = table(read(chosen.file), chosen.comparisons)
    print("\n".join(found.lines))
    return 0 if found.holds else 1


def record(path: Path, runs: int) -> None:
    """Records all programs, in turns, so an hour in which the machine is slow meets all of them."""
    jobs = [(name, 1.0) for name in PROGRAMS] + [(name, factor) for name in GROWN for factor in GROWN[name]]
    kept: dict[str, list[RunFigures]] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for index in range(runs):
        for name, factor in jobs:
            kept.setdefault(f"{name} {factor:g}", []).append(run(name, factor))
        print(f"{index + 1} of {runs}", file=sys.stderr)
        write(path, kept)


def run(name: str, factor: float) -> RunFigures:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(Path(__file__).with_name("programs.py")), name, str(factor)]
        wrap = [
            sys.executable,
            "-m",
            "otel_memwatch",
            "wrap",
            "--quiet",
            "--no-plot",
            "--no-report",
            f"--out={folder}/run",
        ]
        subprocess.run([*wrap, "--", *program], check=True)
        return figures_of(load(f"{folder}/run"))._replace(name="")


def write(path: Path, kept: dict[str, list[RunFigures]]) -> None:
    documents = {}
    for name, runs in kept.items():
        baseline.save(path.with_suffix(".one"), runs)
        documents[name] = json.loads(path.with_suffix(".one").read_text())
    path.with_suffix(".one").unlink()
    path.write_text(baseline.one_line_a_figure(json.dumps(documents, indent=1)) + "\n")


def read(path: Path) -> dict[str, list[RunFigures]]:
    return {name: baseline.parse(one, str(path)) for name, one in json.loads(path.read_text()).items()}


class Table:
    """The lines of the table, and whether what it has to show holds."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.holds = True

    def add(self, text: str, share: float, wanted: str, *, holds: bool) -> None:
        self.lines.append(f"| {text} | {100 * share:.1f} % | {wanted} | {'yes' if holds else '**no**'} |")
        self.holds = self.holds and holds


def table(recorded: dict[str, list[RunFigures]], comparisons: int, seed: int = 1) -> Table:
    """Null and power from recorded runs."""
    rng = random.Random(seed)
    made = Table()
    runs = min(map(len, recorded.values()))
    made.lines += [f"{runs} recorded runs of each program, {comparisons} comparisons.", "",
                   "| comparison | found | wanted | holds |", "| --- | ---: | ---: | --- |"]  # fmt: skip
    false: Counter[str] = Counter()
    total: Counter[str] = Counter()
    sizes = [size for size in SIZES if sum(size) <= runs]
    for index in range(comparisons):
        name = list(PROGRAMS)[index % len(PROGRAMS)]
        base, head = draw(rng, recorded[f"{name} 1"], *sizes[(index // len(PROGRAMS)) % len(sizes)])
        kind = "one process and thread" if name in ALONE else "several at once"
        total[kind] += 1
        false[kind] += bool(compare(base, head).having(ComparisonVerdict.REGRESSED))
    for kind in total:
        made.add(f"identical programs, {kind}: regressed", false[kind] / total[kind], "at most 1 %",
                 holds=false[kind] <= 0.01 * total[kind])  # fmt: skip
    share = sum(false.values()) / comparisons
    made.add("identical programs, all: regressed", share, "at most 1 %", holds=share <= 0.01)
    _power(made, recorded, rng, min(500, comparisons))
    return made


def _power(made: Table, recorded: dict[str, list[RunFigures]], rng: random.Random, comparisons: int) -> None:
    cases = [
        ("json", 1.02, 1, ComparisonVerdict.REGRESSED, 0.95),
        ("text", 1.02, 1, ComparisonVerdict.REGRESSED, 0.95),
        ("json", 1.01, 5, ComparisonVerdict.REGRESSED, 0.95),
        ("text", 1.01, 5, ComparisonVerdict.REGRESSED, 0.95),
        ("pool", 1.15, 12, ComparisonVerdict.REGRESSED, 0.90),
        ("pool", 1.15, 3, ComparisonVerdict.NOT_ENOUGH, 1.0),
    ]
    for name, factor, count, verdict, wanted in cases:
        before, after = recorded[f"{name} 1"], recorded[f"{name} {factor:g}"]
        if min(len(before), len(after)) < count:
            continue
        found = 0
        for _ in range(comparisons):
            result = compare(rng.sample(before, count), rng.sample(after, count))
            found += next(one for one in result.figures if one.name == MEMORY).verdict is verdict
        more = _typical(after) / _typical(before) - 1
        text = f"{name} needs {100 * more:.1f} % more, {count} against {count}: {verdict.value}"
        made.add(text, found / comparisons, f"{100 * wanted:.0f} %", holds=found >= wanted * comparisons)


def _typical(runs: list[RunFigures]) -> float:
    return statistics.median(run.figures[MEMORY].value for run in runs)


def draw(
    rng: random.Random, runs: list[RunFigures], base: int, head: int
) -> tuple[list[RunFigures], list[RunFigures]]:
    drawn = rng.sample(runs, base + head)
    return drawn[:base], drawn[base:]


if __name__ == "__main__":
    sys.exit(main())

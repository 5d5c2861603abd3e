"""Prints recall and false rate of change points in synthetic histories: 10 000 runs of 50 names.

python -m tests.bench.changes [HISTORIES] [--seed N] [--growing N [--kind KIND]...]

Each history has 200 runs of each name with 2 % scatter. A change counts as found if a step lies within three runs of the
planted one. For a drift, the reported one must overlap it. Every other change is false. The column "5 runs" is the share of
steps of 5 % that are found by the time five runs after the step are known, in a history that is judged after each run.

With --growing, N histories of each kind without a planted change are judged again after each of their runs: a change that any
of these judgements reports counts once, also if later runs withdraw it.

With --ideal, prints the share of steps of 5 % that are found within 1 to 8 runs if level, scatter and size are known in
advance, with one false change in 1 000 runs. CUSUM then has the shortest mean delay of all detectors.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from otel_memwatch.wings.index.changes import changes
from otel_memwatch.wings.index.indexed_run import IndexedRun

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS, NAMES, SCATTER, MIB = 200, 50, 0.02, 1 << 20


def _alike(rng: Any) -> Any:
    values = rng.standard_normal(RUNS)
    for place in range(1, RUNS):
        values[place] = 0.5 * values[place - 1] + 0.75**0.5 * values[place]
    return values


KINDS: dict[str, Callable[[Any], Any]] = {
    "unchanged": lambda rng: rng.standard_normal(RUNS),
    "step of 5 %": lambda rng: rng.standard_normal(RUNS),
    "drift of 20 %": lambda rng: rng.standard_normal(RUNS),
    "outliers": lambda rng: rng.standard_normal(RUNS) + 15 * (rng.random(RUNS) < 0.02),
    "gaps": lambda rng: rng.standard_normal(RUNS),
    "OOM kills": lambda rng: rng.standard_normal(RUNS),
    "heavy tails (t, 3)": lambda rng: rng.standard_t(3, RUNS),
    "two modes": lambda rng: 0.3 * rng.standard_normal(RUNS) + 4 * (rng.random(RUNS) < 0.3),
    "alike neighbours": _alike,
    "log-normal": lambda rng: np.exp(rng.standard_normal(RUNS)),
}
STEP, DRIFT = "step of 5 %", "drift of 20 %"


def history(rng: Any, name: str, kind: str) -> tuple[list[IndexedRun], tuple[int, int] | None]:
    """Return the runs of one name, and where it changed: first and last place of a drift, twice the place of a step."""
    memory = 200 * MIB * (1 + SCATTER * KINDS[kind](rng))
    planted = None
    if kind == STEP:
        place = int(rng.integers(20, RUNS - 20))
        memory[place:] *= 1.05
        planted = place, place
    elif kind == DRIFT:
        start = int(rng.integers(0, 80))
        memory *= 1 + 0.2 * np.clip((np.arange(RUNS) - start) / 100, 0, 1)
        planted = start, start + 100
    rows = []
    for place in range(RUNS):
        row = IndexedRun(f"{name}/{place}", str(place), "finished", name=name, started=place, exit_code=0)
        row = row._replace(memory=int(memory[place]), certainty="exact", tags_json=json.dumps({"kind": kind}))
        if kind == "OOM kills" and rng.random() < 0.1:
            row = row._replace(memory=int(memory[place] * 0.6), oom_kills=1, exit_code=None, signal=9)
        if kind == "gaps" and rng.random() < 0.3:
            row = row._replace(memory=None)
        rows.append(row)
    return rows, planted


def found_in(rows: list[IndexedRun], planted: tuple[int, int] | None) -> tuple[bool, int]:
    """Return whether the planted change was found, and the number of false changes."""
    found, false = False, 0
    for one in changes(rows, None):
        first, last = int(one.first.id), int(one.last.id)
        if planted is not None and (
            abs(first - planted[0]) <= 3
            if planted[0] == planted[1]
            else not one.is_step and last < planted[1] and first > planted[0]
        ):
            found = True
        else:
            false += 1
    return found, false


def growing(rng: Any, histories: int, kind: str) -> int:
    """Return the false changes that are reported at some time while histories grow."""
    false = 0
    for _ in range(histories):
        rows, _ = history(rng, "name", kind)
        known: list[int] = []
        for runs in range(2, RUNS + 1):
            for one in changes(rows[:runs], None):
                if all(abs(int(one.first.id) - place) > 5 for place in known):
                    known.append(int(one.first.id))
        false += len(known)
    return false


def ideal(rng: Any, size: float) -> list[float]:
    """Return the shares of steps that CUSUM finds within 1 to 8 runs. `size`: of the step, in standard deviations."""

    def alarms(values: Any, limit: float, sums: Any) -> Any:
        # One column for steps up, one for steps down. A reported change starts both again.
        times = []
        for value in values.T:
            np.maximum(0, sums + size * (np.stack((value, -value), 1) - size / 2), out=sums)
            above = (sums > limit).any(1)
            sums[above] = 0
            times.append(above)
        return np.array(times)

    noise = rng.standard_normal((1000, 2000))
    low, high = 0.0, 20.0
    for _ in range(12):
        middle = (low + high) / 2
        rate = 1000 * alarms(noise, middle, np.zeros((len(noise), 2))).mean()
        low, high = (middle, high) if rate > 1 else (low, middle)
    values, sums = rng.standard_normal((100_000, 38)), np.zeros((100_000, 2))
    alarms(values[:, :30], high, sums)
    found = alarms(values[:, 30:] + size, high, sums)
    return [float(found[:runs].any(0).mean()) for runs in range(1, 9)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("histories", type=int, nargs="?", default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--growing", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--ideal", action="store_true")
    given = parser.parse_args()
    if given.ideal:
        for runs, share in enumerate(ideal(np.random.default_rng(given.seed), 0.05 / SCATTER), 1):
            print(f"within {runs} runs: {share:.1%}")
        return
    rng = np.random.default_rng(given.seed)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for _ in range(given.histories):
        for number in range(NAMES):
            kind = list(KINDS)[number % len(KINDS)]
            rows, planted = history(rng, f"name {number}", kind)
            found, false = found_in(rows, planted)
            total = sums[kind]
            total[0] += RUNS
            total[1] += planted is not None
            total[2] += found
            total[3] += false
            if kind == STEP and planted is not None:
                total[4] += any(found_in(rows[: planted[0] + after], planted)[0] for after in (4, 5))
    print(
        f"{'kind':<20} {'runs':>8} {'planted':>8} {'found':>6} {'recall':>7} {'5 runs':>7} {'false':>6} {'per 1000':>9}"
    )
    for kind, (runs, planted_all, found_all, false_all, early) in sums.items():
        recall = f"{found_all / planted_all:.0%}" if planted_all else "-"
        soon = f"{early / planted_all:.0%}" if kind == STEP else "-"
        print(
            f"{kind:<20} {runs:>8} {planted_all:>8} {found_all:>6} {recall:>7} {soon:>7} {false_all:>6} {1000 * false_all / runs:>9.2f}"
        )
    if given.growing:
        print("judged after each run:")
        for kind in given.kind or [one for one in KINDS if one not in (STEP, DRIFT)]:
            rng = np.random.default_rng(given.seed)  # the same for a kind alone
            rate = 1000 * growing(rng, given.growing, kind) / given.growing / RUNS
            print(f"{kind:<20} {rate:>9.2f} per 1000", flush=True)


if __name__ == "__main__":
    main()

"""Ranges of peaks with `--interval auto` in an old run, compared with those at 10 Hz.

    python -m tests.bench.auto_width services [--seconds 90] [--only NAME] [--rounds 1]
    python -m tests.bench.auto_width zoo [--count 200] [--seed 1] [--mode off] [--user user] [--same]

The schedule begins as in a run of three hours, so the longest interval is 10 s. `--spare 1`: the run has also used up its
budget of short intervals, as one that changes all the time.

* services: two monitors attach to each loaded service of `tests.bench.services` at once. `--rounds`: so often; the ratio is the
  geometric mean of all. The bound of a tree depends on the moments of its samples, so two monitors at 10 Hz differ, too (`--same`).
* zoo: each composition of `tests.zoo` runs once with each interval, and is checked for false bounds. Two runs at 10 Hz differ,
  too (`--same`).

Printed: upper divided by lower bound of each figure with both intervals, and the ratio of these widths.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.services import SERVICES, Service, loaded
from tests.zoo import trial
from tests.zoo.compositions import KINDS, drawn
from tests.zoo.surroundings import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
AGED = """
import sys
from otel_memwatch.monitor.sampling import auto_interval as schedule
age, schedule._SPARE = float(sys.argv.pop(1)), float(sys.argv.pop(1))
longest = schedule.auto_interval
schedule.auto_interval = lambda of_run: longest(age + of_run)
if "--interval" in sys.argv:
    sys.argv[sys.argv.index("--interval") + 1] = "auto"
from otel_memwatch.cli import main
main()
"""
AGE = 3 * 3600.0
GOAL = 1.1


def aged(spare: float) -> list[str]:
    """Return the first words of a command line with an old schedule."""
    return [sys.executable, "-c", AGED, str(AGE), str(spare)]


def figures(peaks: dict[str, Any], name: str = "") -> Iterator[tuple[str, float, float]]:
    """Yield name, lower and upper bound of each figure in the peaks of a run, unless a bound is unknown."""
    for key, value in peaks.items():
        if isinstance(value, dict):
            if value.get("low") and value.get("high"):
                yield name + key, value["low"], value["high"]
            yield from figures(value, f"{name}{key} ")


def compared(name: str, often: dict[str, Any], seldom: dict[str, Any]) -> dict[str, float]:
    """Print the figures of two records; return the ratios of their widths."""
    others, ratios = {key: (low, high) for key, low, high in figures(seldom)}, {}
    for key, low, high in figures(often):
        other = others.get(key)
        ratios[key] = math.inf if other is None else other[1] / other[0] / (high / low)
        shown = "none" if other is None else f"{other[0] / MIB:.1f}-{other[1] / MIB:.1f}"
        print(
            f"| {name} | {key} | {low / MIB:.1f}-{high / MIB:.1f} | {shown} | {ratios[key]:.2f} |", flush=True
        )
    return ratios


def services(chosen: argparse.Namespace) -> list[float]:
    """Compare two monitors of each service."""
    ratios: list[float] = []
    for name, service in SERVICES.items():
        rounds = [
            _round(name, service, chosen) for _ in range(chosen.rounds if chosen.only in (None, name) else 0)
        ]
        of_each: dict[str, list[float]] = {}
        for key, ratio in (pair for one in rounds for pair in one.items()):
            of_each.setdefault(key, []).append(ratio)
        for key, found in of_each.items():
            ratios.append(statistics.geometric_mean(found))
            if chosen.rounds > 1:
                print(
                    f"| {name} | {key} | {len(found)} rounds | {min(found):.2f}-{max(found):.2f} | {ratios[-1]:.2f} |"
                )
    return ratios


def _round(name: str, service: Service, chosen: argparse.Namespace) -> dict[str, float]:
    """Compare two monitors once."""
    plain = [sys.executable, "-m", "otel_memwatch"]
    starts = {"10 Hz": plain, "other": plain if chosen.same else aged(chosen.spare)}
    with tempfile.TemporaryDirectory() as home, loaded(service, 10.0) as pid:
        monitors = [
            subprocess.Popen(
                [*words, "attach", str(pid), "--quiet", "--interval", "100ms", "--out", f"{home}/{which}"]
            )
            for which, words in starts.items()
        ]
        time.sleep(chosen.seconds)
        for one in monitors:
            one.terminate()
        for one in monitors:
            one.wait()
        found = [json.loads(Path(home, which, "run.json").read_text())["peaks"] for which in starts]
    return compared(name, *found)


def zoo(chosen: argparse.Namespace) -> list[float]:
    """Compare two runs of each composition."""
    trial.zoo()
    prepare()

    def both(number: int) -> tuple[trial.Trial, trial.Trial]:
        dice = random.Random(f"{chosen.seed} {number}")
        part = drawn(dice, dice.sample(list(KINDS), dice.choice((1, 1, 2, 3))))
        plain = [sys.executable, "-m", "otel_memwatch"]
        often, seldom = (
            trial.run(part, chosen.mode, chosen.user, "0.1", program=words)
            for words in (plain, plain if chosen.same else aged(chosen.spare))
        )
        return often, seldom

    ratios: list[float] = []
    with ThreadPoolExecutor(2) as pool:
        for often, seldom in pool.map(both, range(chosen.count)):
            for problem in (*often.problems, *seldom.problems):
                print(f"{problem}\n    {seldom.how}", flush=True)
            if often.peaks["tree"] and seldom.peaks["tree"]:
                name = "+".join(leaf.kind for leaf in trial.leaves(often.part))
                ratios += compared(name, often.peaks, seldom.peaks).values()
    return ratios


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["services", "zoo"])
    parser.add_argument("--spare", type=float, default=1500.0, help="samples of the budget that are left")
    parser.add_argument("--seconds", type=float, default=90.0, help="of each service")
    parser.add_argument("--only", choices=SERVICES)
    parser.add_argument("--rounds", type=int, default=1, help="of each service")
    parser.add_argument("--same", action="store_true", help="compare 10 Hz with 10 Hz")
    parser.add_argument("--count", type=int, default=200, help="compositions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=trial.MODES, default="off")
    parser.add_argument("--user", choices=trial.USERS, default="user")
    chosen = parser.parse_args()
    print(
        "| program | figure | 10 Hz, MiB | auto, MiB | width, auto / 10 Hz |\n| --- | --- | --- | --- | ---: |"
    )
    ratios = sorted(services(chosen) if chosen.what == "services" else zoo(chosen))
    within = sum(ratio <= GOAL for ratio in ratios)
    print(
        f"{len(ratios)} figures: median {statistics.median(ratios):.2f}, 90 % {ratios[int(0.9 * (len(ratios) - 1))]:.2f},"
        f" largest {ratios[-1]:.2f}; {within} of {len(ratios)} within {GOAL}"
    )


if __name__ == "__main__":
    main()

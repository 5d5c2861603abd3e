"""Prints how often verdicts on growth are right: simulated repeats of an operation.

python -m tests.bench.growth repeats [RUNS] [--seed N]

Each run has 24 to 1000 repeats at 100 MiB to 15 GiB, and a scatter of 0.1, 0.3 or 1 %. Shapes without a leak: level, warm-up,
a cache that is full before 85 % of the repeats, saturation, sawtooth (also one that is trimmed at random), steps, random walk,
and neighbours that are alike. Leaks keep 0.5 to 5 % per repeat.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from otel_memwatch.run.growth import FloorCurve
from otel_memwatch.truth.growth import LEAK, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[Random, int], list[float]]

MIB = 1 << 20
SCATTERS = (0.001, 0.003, 0.01)


def _alike(share: float) -> Shape:
    def values(rng: Random, number: int) -> list[float]:
        value, found = 0.0, []
        for _ in range(number):
            value = share * value + math.sqrt(1 - share**2) * rng.gauss(0, 1)
            found.append(0.02 * value)
        return found

    return values


def _warm_up(rng: Random, number: int) -> list[float]:
    return _saturation(rng, number, 0.02, 0.3)


def _saturation(rng: Random, number: int, first: float = 0.3, last: float = 0.8) -> list[float]:
    length, size = number * rng.uniform(first, last), rng.uniform(0.1, 3)
    return [size * (1 - math.exp(-place / length)) for place in range(number)]


def _cache(rng: Random, number: int) -> list[float]:
    full, size = number * rng.uniform(0.1, 0.85), rng.uniform(0.1, 3)
    return [size * min(1, place / full) for place in range(number)]


def _sawtooth(rng: Random, number: int, longest: float = 1 / 3, largest: float = 1.0) -> list[float]:
    period, size = rng.uniform(2, max(2.5, number * longest)), rng.uniform(0.02, largest)
    begin = rng.random() * period
    return [size * ((place + begin) / period % 1) for place in range(number)]


def _trimmed(rng: Random, number: int) -> list[float]:
    often, value, found = 1 / rng.randrange(3, 12), 0.0, []
    for _ in range(number):
        value += rng.uniform(0.01, 0.05)
        if rng.random() < often:
            value *= rng.uniform(0, 0.2)
        found.append(value)
    return found


def _steps(rng: Random, number: int) -> list[float]:
    steps = [(rng.randrange(number), rng.uniform(0.03, 0.5)) for _ in range(rng.randint(1, 4))]
    return [sum(size for begin, size in steps if place >= begin) for place in range(number)]


def _walk(rng: Random, number: int) -> list[float]:
    value, found = 0.0, []
    for _ in range(number):
        value += rng.gauss(0, 0.005)
        found.append(value)
    return found


def _leak(rng: Random, number: int) -> list[float]:
    rate = rng.uniform(0.005, 0.05)
    return [rate * place for place in range(number)]


def _together(*shapes: Shape) -> Shape:
    return lambda rng, number: [
        sum(values) for values in zip(*(shape(rng, number) for shape in shapes), strict=True)
    ]


NO_LEAK: dict[str, Shape] = {
    "level": lambda _, number: [0.0] * number,
    "warm-up": _warm_up,
    "cache": _cache,
    "saturation": _saturation,
    "sawtooth": _sawtooth,
    "trimmed at random": _trimmed,
    "steps": _steps,
    "random walk": _walk,
    "alike neighbours (0.9)": _alike(0.9),
    "alike neighbours (0.99)": _alike(0.99),
}
LEAKS: dict[str, Shape] = {
    "leak": _leak,
    "leak after warm-up": _together(_leak, lambda rng, number: _saturation(rng, number, 0.02, 0.05)),
    "leak under a sawtooth": _together(_leak, lambda rng, number: _sawtooth(rng, number, 1 / 24, 0.1)),
}


def verdict(shape: Shape, rng: Random, scatter: float) -> str:
    """Return the verdict on a simulated run."""
    number = int(math.exp(rng.uniform(math.log(24), math.log(1000))))
    level = 100 * MIB * math.exp(rng.uniform(0, 5))
    curve = FloorCurve()
    for place, value in enumerate(shape(rng, number)):
        curve.add(level * (1 + value + abs(rng.gauss(0, scatter))), place)
    found = judge(curve.points())
    return "none" if found is None else found.kind


def repeats(runs: int, seed: int) -> tuple[float, dict[str, float]]:
    """Print the verdicts on each shape; return the share of false leaks and the share of each kind of leak that was found."""
    kinds = {**NO_LEAK, **LEAKS}
    false, found, each = 0, {}, max(1, runs // len(kinds))
    print("| shape | runs | verdicts, in % |\n| --- | --- | --- |")
    for name, shape in kinds.items():
        rng = Random(f"{seed} {name}")
        counts = Counter(verdict(shape, rng, SCATTERS[run % len(SCATTERS)]) for run in range(each))
        if name in LEAKS:
            found[name] = counts[LEAK] / each
        else:
            false += counts[LEAK]
        print(
            f"| {name} | {each} | {', '.join(f'{kind} {100 * n / each:.1f}' for kind, n in counts.most_common())} |"
        )
    share = false / (each * len(NO_LEAK))
    print(f"\nfalse leaks: {false} of {each * len(NO_LEAK)} ({100 * share:.2f} %)")
    return share, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["repeats"])
    parser.add_argument("runs", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    repeats(chosen.runs, chosen.seed)

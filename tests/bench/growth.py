"""Prints how often verdicts on growth are right: simulated repeats of an operation, and simulated services.

python -m tests.bench.growth repeats [RUNS] [--seed N]
python -m tests.bench.growth services [DAYS] [--seed N] [--age HOURS]
python -m tests.bench.growth limit [RUNS]

Each run has 24 to 1000 repeats at 100 MiB to 15 GiB, and a scatter of 0.1, 0.3 or 1 %. Shapes without a leak: level, warm-up,
a cache that is full before 85 % of the repeats, saturation, sawtooth (also one that is trimmed at random), steps, random walk,
and neighbours that are alike. Leaks keep 0.5 to 5 % per repeat.

Services run for five days after `--age` hours, with a sample every 30 s, and are judged each hour. A day counts as false if a leak is named once in
it. Loads vary over the day by 10 to 70 %, some services are deployed again every two days on average. Caches are full, or
nearly, within two hours. Leaks of 50 MB an hour begin in services of 0.3 to 1.5 GiB, those of 0.8 % an hour in any.

`limit`: leaks that an observer names who knows everything but the distribution of the floors. It sees the memory after each collection or
recycled worker without any other noise, or the smallest of some in a row, and does Kendall's test at one error in 24 000: a false leak in 1 000 days of
24 judgements. Of caches it sees the exact curve. Growth that fades no more than a cache of two hours does is a leak to it.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from functools import cache
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from otel_memwatch.run.growth import FloorCurve, TimeFloors
from otel_memwatch.truth.growth import LEAK, judge
from otel_memwatch.truth.service_growth import ServiceLoad

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


class Service:
    """A simulated service: memory in bytes, CPU time and processes at each sample."""

    def __init__(self, rng: Random, kind: str, *, steady: bool) -> None:
        self.rng, self.kind = rng, kind
        self.base = MIB * math.exp(rng.uniform(math.log(300), math.log(1500)))
        self.swing, self.phase = (0.0, 0.0) if steady else (rng.uniform(0.1, 0.7), rng.uniform(0, DAY))
        self.deploys = 0.0 if steady else STEP / (2 * DAY)
        self.share, self.period = rng.uniform(0.05, 0.5), 60 * math.exp(rng.uniform(0, math.log(60)))
        self.fill = rng.uniform(600, 7200)
        self.workers = [rng.random() for _ in range(rng.randint(2, 8))]
        self.began, self.heap, self.cpu, self.sessions = 0.0, 0.0, 0.0, 1.0
        self.both = 0.0

    def step(self, time: float) -> tuple[float, float, int]:
        """Return memory, CPU seconds so far and processes."""
        rng = self.rng
        load = 1 + self.swing * math.sin(2 * math.pi * (time + self.phase) / DAY)
        load *= math.exp(rng.gauss(0, 0.1))
        self.cpu += STEP * 0.2 * load
        if rng.random() < self.deploys:
            self.began, self.heap, self.both = time, 0.0, time + rng.uniform(60, 600)
        age = time - self.began
        memory = 1 + 0.02 * abs(rng.gauss(0, 1)) + self._of_kind(load, age, time)
        processes = 1 + len(self.workers)
        if time < self.both:  # the old generation runs beside the new one
            memory, processes = 2 * memory, 2 * processes
        return self.base * memory, self.cpu, processes

    def _of_kind(self, load: float, age: float, time: float) -> float:
        """Return memory beyond the base, as a share of it."""
        rng, share = self.rng, self.share
        warm = share * (1 - math.exp(-age / self.fill))
        if self.kind in ("node", "go", "jvm"):  # garbage collection
            self.heap += share * STEP / self.period * load
            if self.heap > share * (3 if self.kind == "jvm" else 1):
                self.heap *= rng.uniform(0, 0.3)
            return self.heap + 0.3 * warm
        if self.kind == "gunicorn, recycled":
            grown = (used + STEP / (90 * self.period / 60) * load for used in self.workers)
            self.workers = [0.0 if used > rng.uniform(0.9, 1.1) else used for used in grown]
            return share * sum(self.workers) / len(self.workers)
        if self.kind == "uvicorn":  # memory of sessions, and trims
            self.sessions += 0.01 * (load - self.sessions)
            self.heap = 0.0 if rng.random() < 0.05 else min(share, self.heap + share * rng.random() * 0.05)
            return share * self.sessions + 0.3 * self.heap
        if self.kind == "postgres":  # connections, and large queries
            return warm + 0.3 * share * load + (share if rng.random() < 0.02 else 0.0)
        if self.kind == "redis":  # a filled data set, and copies while it is saved
            return min(share, share * age / self.fill) + (0.2 if time % 3600 < 60 else 0.0)
        return 0.05 * share * load  # nginx


SERVICES = ("gunicorn, recycled", "uvicorn", "node", "jvm", "postgres", "redis", "nginx", "go")
LEAKING = {"50 MB/h": (3, 12, 24), "0.8 %/h": (12, 24, 48)}
"""Leaks, and hours in which they are looked for."""
DAY, STEP, JUDGED = 86400.0, 30.0, 3600.0


def named(service: Service, seconds: float, leak: float = 0.0, age: float = 0.0) -> list[float]:
    """Return the times at which a leak is named, of one judgement each hour.

    Args:
        service: a simulated service.
        seconds: duration of the recording.
        leak: bytes in a second, from the beginning of the recording.
        age: seconds for which the service has run before it is recorded.
    """
    floors, found = TimeFloors(), []
    for n in range(int(age / STEP)):
        service.step(n * STEP)
    for n in range(int(seconds / STEP)):
        time = n * STEP
        memory, cpu, processes = service.step(time + age)
        floors.add(memory + leak * time, ServiceLoad(time, cpu, processes))
        if (time + STEP) % JUDGED == 0 and (one := floors.finding(0.0)) is not None and one.kind == LEAK:
            found.append(time + STEP)
    return found


def services(days: int, seed: int, age: float) -> int:
    """Print days with a false leak, and the share of leaks that are found in time; return the number of false days."""
    columns = [f"{name} in {hours} h" for name, times in LEAKING.items() for hours in times]
    print(f"| service | days | days with a false leak | {' | '.join(columns)} |")
    print(f"| --- | {'| '.join(['---: '] * (len(columns) + 2))}|")
    runs = max(1, days // 5 // len(SERVICES))
    every, found = 0, dict.fromkeys(columns, 0)
    for kind in SERVICES:
        rng, false = Random(f"{seed} {kind}"), 0
        for _ in range(runs):
            false += len(
                {int((time - 1) / DAY) for time in named(Service(rng, kind, steady=False), 5 * DAY, 0.0, age)}
            )
        every += false
        shares = []
        for name, times in LEAKING.items():
            first = []
            for _ in range(runs):
                one = Service(rng, kind, steady=True)
                rate = (50e6 if name == "50 MB/h" else 0.008 * one.base) / 3600
                first.append(min(named(one, times[-1] * 3600.0, rate, age), default=math.inf))
            shares += [sum(time <= 3600 * hours for time in first) for hours in times]
        print(
            f"| {kind} | {5 * runs} | {false} | {' | '.join(f'{100 * n / runs:.0f} %' for n in shares)} |",
            flush=True,
        )
        found = {name: found[name] + n for name, n in zip(columns, shares, strict=True)}
    of_all = " | ".join(f"{100 * n / runs / len(SERVICES):.0f} %" for n in found.values())
    print(f"| all | {5 * runs * len(SERVICES)} | {every} | {of_all} |")
    return every


_ALPHA, _FADED = 1 / 24_000, 0.57
"""Error of one judgement, and growth in the second half of a judged part of 3 h if a cache fills in 2 h, in that of the first half."""


@cache
def fewest_falls(number: int) -> int:
    """Return the most pairs that may not rise among values in random order, at `_ALPHA`; negative: too few values."""
    ways = [1]  # orders by their number of such pairs
    for size in range(2, number + 1):
        ways = [sum(ways[max(0, n - size + 1) : n + 1]) for n in range(len(ways) + size - 1)]
    total, most = 0, -1
    while (total := total + ways[most + 1]) <= _ALPHA * math.factorial(number):
        most += 1
    return most


def is_known(kind: str, service: Service, seconds: float, leak: float) -> bool:
    """Return whether that observer names a leak of so many bytes in a second."""
    if kind in ("postgres", "redis"):
        quarter, middle = seconds / 4, seconds * 5 / 8
        grown = [
            service.base * service.share * _filled(kind, time / service.fill) + leak * time
            for time in (quarter, middle, seconds)
        ]
        return grown[2] - grown[1] >= _FADED * (grown[1] - grown[0])
    if kind in ("uvicorn", "nginx"):
        return True
    floors, before = [], 0.0
    for n in range(int(seconds / STEP)):
        service.step(n * STEP)
        workers = service.share * sum(service.workers) / len(service.workers)
        now = workers if kind == "gunicorn, recycled" else service.heap
        if now < before:
            floors.append(service.base * now + leak * n * STEP)
        before = now
    for together in (1, 2, 3, 4, 6, 8, 12):
        least = [min(floors[n : n + together]) for n in range(0, len(floors) - together + 1, together)][-40:]
        falls = sum(after <= value for value, after in combinations(least, 2))
        if falls <= fewest_falls(len(least)):
            return True
    return False


def _filled(kind: str, share: float) -> float:
    return min(1, share) if kind == "redis" else 1 - math.exp(-share)


def limit(runs: int) -> None:
    """Print the share of leaks that this observer names."""
    print("| service | 50 MB/h in 3 h | 0.8 %/h in 12 h |\n| --- | ---: | ---: |")
    every = []
    for kind in SERVICES:
        named_of = []
        for hours, of_base in ((3, 0.0), (12, 0.008)):
            found = 0
            for run in range(runs):
                one = Service(Random(f"{run} {kind}"), kind, steady=True)
                found += is_known(kind, one, 3600.0 * hours, (of_base * one.base or 50e6) / 3600)
            named_of.append(100 * found / runs)
        every.append(named_of)
        print(f"| {kind} | {named_of[0]:.0f} % | {named_of[1]:.0f} % |", flush=True)
    of_all = [sum(shares) / len(shares) for shares in zip(*every, strict=True)]
    print(f"| all | {of_all[0]:.0f} % | {of_all[1]:.0f} % |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["repeats", "services", "limit"])
    parser.add_argument("number", type=int, nargs="?", help="runs (10 000), or service-days (1 000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--age", type=float, default=0.0, help="of a service, in hours")
    chosen = parser.parse_args()
    if chosen.what == "repeats":
        repeats(chosen.number or 10_000, chosen.seed)
    elif chosen.what == "limit":
        limit(chosen.number or 300)
    else:
        services(chosen.number or 1_000, chosen.seed, 3600 * chosen.age)

"""Growth of counters between two moments: what is found of many together is what each says by itself."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right

from otel_memwatch.run.ticks import TickSeries


def series(*ticks: tuple[float, float]) -> TickSeries:
    return TickSeries(array("d", [time for time, _ in ticks]), array("d", [value for _, value in ticks]))


def level(ticks: list[tuple[float, float]], time: float) -> float:
    """A counter's value at a moment, on the straight line between the ticks around it."""
    after = bisect_right([at for at, _ in ticks], time)
    if after in (0, len(ticks)):
        return ticks[max(0, after - 1)][1]
    (begin, low), (end, high) = ticks[after - 1], ticks[after]
    return low + (high - low) * (time - begin) / (end - begin)


def test_between_two_ticks_a_counter_grows_evenly_and_outside_of_all_not_at_all() -> None:
    counter = series((1.0, 100.0), (2.0, 300.0), (4.0, 300.0))

    assert counter.growths([1.0, 1.25, 1.5, 3.0, 0.0, 4.5], [2.0, 1.75, 3.0, 3.5, 1.0, 9.0]) == [
        200.0, 100.0, 100.0, 0.0, 0.0, 0.0
    ]  # fmt: skip


def test_one_tick_tells_of_no_growth() -> None:
    assert series((1.0, 5.0)).growths([1.0], [2.0]) is None


def test_growths_of_many_are_those_of_each() -> None:
    draw = random.Random(7)
    for _ in range(50):
        times = sorted(draw.sample(range(1000), draw.randrange(2, 30)))
        values, value = [], 0.0
        for _ in times:
            value += draw.choice((0.0, draw.random() * 1e9))
            values.append(value)
        ticks = list(zip(map(float, times), values, strict=True))
        starts = [draw.choice((draw.uniform(-50, 1050), float(draw.choice(times)))) for _ in range(200)]
        ends = [start + draw.choice((0.0, draw.random(), draw.random() * 300)) for start in starts]

        found = series(*ticks).growths(starts, ends)

        assert found == [
            max(0.0, level(ticks, end) - level(ticks, start)) for start, end in zip(starts, ends, strict=True)
        ]

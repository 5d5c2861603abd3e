"""Growth of counters between two moments: what is found of many together is what each says by itself."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from pathlib import Path

import pytest

from otel_memwatch.record.open import read_run
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.sample_series import SampleSeries, TreeSeries
from tests.support.run_directory import MIB, STARTED, RunDirectory, column


def series(*ticks: tuple[float, float]) -> SampleSeries:
    return SampleSeries(array("d", [time for time, _ in ticks]), array("d", [value for _, value in ticks]))


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


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(1.2, 1.4, 100), (2.2, 3.0, 300), (1.2, 2.5, 100), (0.2, 1.4, None), (3.0, 4.5, None), (2.0, 2.0, 100)],
)
def test_the_least_beside_is_that_of_the_samples_around(
    start: float, end: float, expected: int | None
) -> None:
    ticks = series((1.0, 100.0), (2.0, 300.0), (4.0, 400.0))
    assert ticks.least_beside(start, end) == expected


def test_one_tick_shows_no_growth() -> None:
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


def ticks_of(path: Path, reading: float | None, **fields: object) -> TreeSeries:
    """Four samples of a run in a separate group, which needed 80 MiB until it was read at the second one; the reading took long."""
    built = RunDirectory(path, own_cgroup="/x", **fields)
    built.columns(
        [
            column("memwatch.cgroup.memory.usage"),
            column("memwatch.cgroup.memory.file"),
            column("memwatch.cgroup.memory.window"),
            column("memwatch.cgroup.memory.peak"),
            column("memwatch.tree.disk.io", disk__io__direction="read"),
            column("memwatch.tree.unobserved"),
            column("memwatch.sampler.reading.duration", 1.0),
        ]
    )
    for seconds, usage, window, unseen in (
        (0.1, 20, 20, 0),
        (0.2, 20, 80, 3),
        (0.3, 20, 20, 3),
        (0.4, 20, 20, 3),
    ):
        built.tick(
            seconds, usage * MIB, 0, window * MIB, 80 * MIB, 0, unseen, reading if seconds == 0.2 else None
        )
    return TreeSeries(read_run(path).samples(METRICS), RunConditions.of(built.info), all_ended=True)


def test_an_operation_within_a_long_reading_may_have_the_earlier_window(tmp_path: Path) -> None:
    """The peak was read 50 ms after the sample's time: an operation that began meanwhile may have reached it."""
    begin, end = STARTED + 0.22, STARTED + 0.23
    late = ticks_of(tmp_path / "late", 0.05, reading_seconds=0.002)
    soon = ticks_of(tmp_path / "soon", None, reading_seconds=0.002)
    assert (late.windows.most(begin, end) or 0) > 80 * MIB
    assert (soon.windows.most(begin, end) or 0) < 30 * MIB


def test_an_operation_that_ends_within_a_long_reading_does_not_have_the_sample(tmp_path: Path) -> None:
    begin, end = STARTED + 0.15, STARTED + 0.23
    late = ticks_of(tmp_path / "late", 0.05, reading_seconds=0.002)
    soon = ticks_of(tmp_path / "soon", None, reading_seconds=0.002)
    assert (late.needed.largest(begin, end), soon.needed.largest(begin, end)) == (None, 20 * MIB)
    assert (late.windows.least(STARTED + 0.05, end) or 0, soon.windows.least(STARTED + 0.05, end)) == (
        0,
        79 * MIB,
    )


def test_processes_without_a_sample_may_have_ended_within_its_reading(tmp_path: Path) -> None:
    (late,) = ticks_of(tmp_path / "late", 0.05, reading_seconds=0.002).unseen_spans()
    assert late.end == pytest.approx(STARTED + 0.25)


def test_ten_milliseconds_are_allowed_for_if_an_older_record_does_not_state_them(tmp_path: Path) -> None:
    old = ticks_of(tmp_path / "old", None)
    assert (old.windows.most(STARTED + 0.209, STARTED + 0.23) or 0) > 80 * MIB
    assert (old.windows.most(STARTED + 0.211, STARTED + 0.23) or 0) < 30 * MIB

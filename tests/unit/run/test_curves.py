"""Curves in few points: no peak is lost, gaps stay, and what is read from a record is what its monitor had."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.model import Column, ProcessEvent, ProcessRecord
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import load
from otel_memwatch.run.curves import LEAST, MOST, NEEDED, Curves, DrawnCurves, curves_of
from otel_memwatch.run.process_curves import ProcessLives
from tests.support import recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TREE, DISK = (
    Column("memwatch.tree.memory.usage"),
    Column("memwatch.tree.disk.io", (("disk.io.direction", "read"),)),
)
USAGE, WINDOW, FILE, LOCKED = (
    Column(f"memwatch.cgroup.memory.{name}") for name in ("usage", "window", "file", "unevictable")
)
MIB = 1 << 20
INFO = {"started": {"monotonic": 100.0}, "interval": 0.1}

ticks = st.lists(
    st.tuples(st.floats(0.001, 3.0), st.none() | st.integers(0, 1 << 40)), min_size=1, max_size=400
)


def drawn(
    found: list[tuple[float, int | None]], points: int
) -> tuple[DrawnCurves, list[tuple[float, int | None]]]:
    columns = TREE, DISK
    curves, make, time, taken = Curves(columns, INFO, points), sample_maker(columns), 100.0, []
    for step, value in found:
        time += step
        taken.append((time - 100.0, value))
        curves.add(make((time, value, value)))
    return curves.drawn(all_ended=True), taken


@given(ticks, st.sampled_from([4, 8, 32, 1000]))
def test_every_bucket_has_the_extremes_of_its_ticks(
    found: list[tuple[float, int | None]], points: int
) -> None:
    curves, taken = drawn(found, points)
    assert len(curves.last) <= points
    assert list(curves.last) == sorted(set(curves.last))
    curve, counter = curves.find(TREE.metric), curves.find(DISK.metric, disk_io_direction="read")
    inside = 0
    for index, (first, last) in enumerate(zip(curves.first, curves.last, strict=True)):
        members = [value for time, value in taken if first <= time <= last]
        inside += len(members)
        known = [value for value in members if value is not None]
        if not known:
            assert curve is None or math.isnan(curve.high[index])
            continue
        assert curve is not None
        assert counter is not None
        assert (curve.low[index], curve.high[index], counter.high[index]) == (
            min(known),
            max(known),
            known[-1],
        )
    assert inside == len(taken)


@settings(max_examples=30)
@given(ticks, st.sampled_from([4, 8, 32]), st.floats(0.5, 3.0))
def test_curves_that_begin_with_their_final_length_are_the_same(
    found: list[tuple[float, int | None]], points: int, of_duration: float
) -> None:
    columns = TREE, DISK
    curves, make, time, samples = Curves(columns, INFO, points), sample_maker(columns), 100.0, []
    for step, value in found:
        time += step
        samples.append(make((time, value, value)))
    if curves.add_expected(samples, of_duration * (time - 100.0)):
        assert_same(curves.drawn(all_ended=True), drawn(found, points)[0])


def test_samples_without_a_pause_have_the_expected_length() -> None:
    columns = TREE, DISK
    make = sample_maker(columns)
    for number in (10, 4096, 5000, 20_000):
        curves = Curves(columns, INFO)
        samples = [make((100 + n / 10, n, n)) for n in range(number)]
        assert curves.add_expected(samples, number / 10)
        grown = Curves(columns, INFO)
        for sample in samples:
            grown.add(sample)
        assert_same(curves.drawn(all_ended=True), grown.drawn(all_ended=True))


def assert_same(one: DrawnCurves, other: DrawnCurves) -> None:
    assert (one.first, one.last, one.step) == (other.first, other.last, other.step)
    assert one.curves.keys() == other.curves.keys()
    for key, curve in one.curves.items():
        assert np.array_equal(curve, other.curves[key], equal_nan=True), key


@given(ticks)
def test_a_hole_in_the_record_stays_between_two_buckets(found: list[tuple[float, int | None]]) -> None:
    curves, taken = drawn([*found, (1000.0, 1), (0.1, 2)], 8)
    begin, end = taken[-3][0], taken[-2][0]
    assert any(
        last <= begin and first >= end
        for last, first in zip(curves.last, list(curves.first)[1:], strict=False)
    )


def test_what_a_window_had_is_in_the_bucket_that_its_tick_ends() -> None:
    """A spike of 500 MiB between two ticks, in a group of the run's own."""
    columns = (USAGE, WINDOW, FILE, DISK)
    make = sample_maker(columns)
    curves = Curves(columns, {**INFO, "own_cgroup": "/sys/fs/cgroup/x", "host": {"cpus": 1}})
    mib = 1 << 20
    for number in range(10):
        curves.add(make((100.1 + number / 10, 10 * mib, (500 if number == 6 else 10) * mib, 2 * mib, 0)))
    found = curves.drawn(all_ended=True)
    needed, least, most = (found.curves[name, ()] for name in (NEEDED, LEAST, MOST))
    assert set(needed.high) == {8 * mib}
    assert [value > 400 * mib for value in least.high] == [number == 6 for number in range(10)]
    assert least.high[6] <= 498 * mib <= most.high[6] < 500 * mib


def test_cache_that_cannot_be_dropped_is_needed() -> None:
    """400 MiB of memfd_secret count as cache, and among what is locked."""
    columns = (USAGE, WINDOW, FILE, LOCKED, DISK)
    make = sample_maker(columns)
    curves = Curves(columns, {**INFO, "own_cgroup": "/sys/fs/cgroup/x", "host": {"cpus": 1}})
    mib = 1 << 20
    for number in range(10):
        curves.add(make((100.1 + number / 10, 410 * mib, 410 * mib, 402 * mib, 400 * mib, 0)))
    most = curves.drawn(all_ended=True).curves[MOST, ()]
    assert all(408 * mib <= value for value in most.high)


def test_memory_does_not_grow_with_the_run() -> None:
    """At the end of these a bucket is one of thousands of ticks."""
    columns = TREE, DISK
    curves, make = Curves(columns, INFO, 4), sample_maker(columns)
    tracemalloc.start()
    for number in range(10_000):
        curves.add(make((100.0 + number / 10, number * 1e6, number * 1e3)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(curves.drawn(all_ended=True).last) <= 4
    assert most < 160 * 1024


def test_asking_changes_nothing() -> None:
    one, other, make = Curves([TREE], INFO, 8), Curves([TREE], INFO, 8), sample_maker([TREE])
    for number in range(50):
        for curves in (one, other):
            curves.add(make((100.0 + number / 10, number * number % 17)))
        one.drawn(all_ended=False)
    assert one.drawn(all_ended=True)[:4] == other.drawn(all_ended=True)[:4]


def test_a_tick_out_of_order_is_left_out() -> None:
    curves = Curves([TREE], INFO)
    for time, value in ((100.1, 1), (100.3, 3), (100.2, 900), (100.4, 4)):
        curves.add(sample_maker([TREE])((time, value)))
    curve = curves.drawn(all_ended=True).find(TREE.metric)
    assert curve is not None
    assert list(curve.high) == [1, 3, 4]


def _long(path: Path) -> Path:
    """A record of more samples than there are buckets, some of them missing."""
    recorded.day(path, ticks=20_000)
    lines = (path / "samples.jsonl").read_text().splitlines(keepends=True)
    (path / "samples.jsonl").write_text("".join(line for n, line in enumerate(lines) if n % 1000 or n < 2))
    return path


def _in_group(path: Path) -> Path:
    """A record whose cgroup bounds what was needed."""
    names = ("usage", "window", "file", "unevictable")
    series = [(f"memwatch.cgroup.memory.{name}", {}) for name in names] + [recorded.DISK_READ]
    rows = [(n / 10, (20 + n) * MIB, (40 + n % 7 * 50) * MIB, n * MIB // 2, 0, 0) for n in range(30)]
    return recorded.record(path, seconds=3, series=series, ticks=rows, own_cgroup="/sys/fs/cgroup/x")


def _by_faults(path: Path) -> Path:
    """A record without a separate cgroup: estimates, and bounds from page faults."""
    names = ("memory.needed", "memory.needed.low", "memory.needed.high", "unobserved.faults", "process.count")
    series = [recorded.TREE, *((f"memwatch.tree.{name}", {}) for name in names)]
    rows = [
        (n / 10, 200 * MIB, (20 + n) * MIB, (15 + n % 9) * MIB, (25 + n) * MIB, n // 3, 1) for n in range(30)
    ]
    return recorded.record(path, seconds=3, series=series, ticks=rows, page_bytes=4096)


@pytest.mark.parametrize(
    "make",
    [
        recorded.short,
        recorded.nested,
        recorded.workers,
        recorded.gpus,
        _long,
        _in_group,
        _by_faults,
    ],
)
@pytest.mark.parametrize("state", ["finished", "running"])
def test_a_record_is_drawn_the_same_from_its_lines_and_from_its_arrays(
    make: Callable[[Path], Path], state: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "run")
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(info | {"state": state}))
    record = load(path).record
    lines, arrays = (
        curves_of(record).drawn(all_ended=True),
        curves_of(record, record.samples()).drawn(all_ended=True),
    )
    assert_same(lines, arrays)


def test_the_largest_lives_stay_however_many_there_were() -> None:
    lives = ProcessLives(100.0)
    for number in range(5000):
        at = 100.0 + number
        rss = 1000 + (number * 7919) % 5000
        lives.add(ProcessRecord(ProcessEvent.SEEN, at, number, at, rss=rss))
        lives.add(ProcessRecord(ProcessEvent.EXIT, at + 5, number, at, rss=rss))
    for number in range(3000):
        lives.add(ProcessRecord(ProcessEvent.FIGURES, 100.0 + number, 9999, 100.0, rss=10_000 + number % 100))
    largest = lives.largest(8)
    assert largest[0].pid == 9999
    assert largest[0].end is None
    assert max(value for _, value in largest[0].points) == 10_099
    assert len(largest[0].points) <= 512
    assert [life.points[0][1] for life in largest[1:]] == [5999, 5998, 5997, 5996, 5995, 5994, 5993]


def test_without_a_cgroup_the_curve_is_of_needed_memory_not_of_resident_sizes(tmp_path: Path) -> None:
    """200 MiB are resident, most of it files; at most 49 MiB were needed."""
    found = load(_by_faults(tmp_path / "run")).curves
    needed, most = found.curves[NEEDED, ()], found.curves[MOST, ()]
    assert max(needed.high) == 49 * MIB
    assert max(most.high) < 55 * MIB
    assert all(low <= high for low, high in zip(needed.high, most.high, strict=True))

"""Whose the memory was: processes are read every second at most, their sum at every tick, and both are drawn as they were."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from otel_memwatch.reports.html.data import page_data
from otel_memwatch.run import load
from tests.support import recorded
from tests.support.recorded import MAIN, MIB, TREE

Readings = Sequence[tuple[float, float]]
"""Seconds, MiB."""


def process(pid: int, start: float, end: float, readings: Readings, peak: float) -> list[dict[str, Any]]:
    """The lines of a process that was read at these moments."""
    known = {"pid": pid, "start": start, "command": f"p{pid}", "argv": [f"p{pid}"], "ppid": 100}
    lines = [
        {"event": "figures" if number else "seen", "time": time, **known, "rss": round(mib * MIB)}
        for number, (time, mib) in enumerate(readings)
    ]
    at_end = {
        "event": "exit",
        "time": end,
        "rss": lines[-1]["rss"],
        "peak": round(peak * MIB),
        "exit_code": 0,
    }
    return [*lines, {**known, **at_end}]


def drawn(path: Path, ticks: Readings, *processes: list[dict[str, Any]], main: float = 2) -> dict[str, Any]:
    """The stack of a run: ticks are the sums of all, `main` MiB of each those of the target."""
    seconds = ticks[-1][0]
    run = recorded.record(
        path,
        seconds=seconds,
        series=[TREE, MAIN],
        ticks=[(time, round(mib * MIB), round(main * MIB)) for time, mib in ticks],
        processes=[line for lines in (process(100, 0.0, seconds, [(0.05, main)], main), *processes) for line in lines],
    )  # fmt: skip
    found: dict[str, Any] = page_data(load(run))["processes"]["stack"]
    assert found["at"] == sorted(set(found["at"]))
    return found


def mib(values: Iterable[int]) -> list[float]:
    return [round(value / 1024, 1) for value in values]


def of(stack: dict[str, Any], name: str) -> list[float]:
    """What is drawn for one process, in MiB."""
    return mib(next(kib for label, kib in zip(stack["names"], stack["kib"], strict=True) if name in label))


def test_what_a_process_gains_between_two_readings_is_of_no_other(tmp_path: Path) -> None:
    sums = [(0.1, 42), (0.2, 100), (0.3, 203), (0.4, 203), (1.1, 203), (1.2, 203)]
    sort = process(201, 0.02, 1.15, [(0.1, 39), (1.1, 200)], 200)
    gzip = process(202, 0.02, 1.3, [(0.1, 1)], 1)

    stack = drawn(tmp_path / "run", [*sums[:-1], (1.2, 3)], sort, gzip)

    assert of(stack, "201") == [39, 97, 200, 200, 200, 0]
    assert of(stack, "all others") == [3, 3, 3, 3, 3, 3]


def test_a_reading_holds_until_the_next_where_the_sum_shows_no_change(tmp_path: Path) -> None:
    """One falls by as much as another rises, at an unknown moment: not by and by."""
    sums = [(number / 10, 152.0) for number in range(1, 23)]
    falling = process(201, 0.0, 2.2, [(0.1, 100), (1.1, 50)], 100)
    rising = process(202, 0.0, 2.2, [(0.1, 50), (1.1, 100)], 100)

    stack = drawn(tmp_path / "run", sums, falling, rising)

    assert of(stack, "201")[:-1] == [100] * 10 + [50] * 11
    assert of(stack, "202")[:-1] == [50] * 10 + [100] * 11


def test_a_process_has_nothing_before_it_began_and_after_its_end(tmp_path: Path) -> None:
    sums = [(0.1, 2), (0.2, 2), (0.3, 82), (0.4, 82), (0.5, 2), (0.6, 2)]

    stack = drawn(tmp_path / "run", sums, process(201, 0.25, 0.45, [(0.3, 80)], 80))

    assert of(stack, "201") == [0, 0, 80, 80, 0, 0]


def test_what_came_and_went_between_two_readings_is_that_of_the_process_that_had_so_much(
    tmp_path: Path,
) -> None:
    sums = [(0.1, 22), (0.2, 22), (0.3, 182), (0.4, 22), (1.1, 22)]

    stack = drawn(
        tmp_path / "run",
        sums,
        process(201, 0.0, 2.0, [(0.1, 10), (1.1, 10)], 170),
        process(202, 0.0, 2.0, [(0.1, 10), (1.1, 10)], 10),
    )

    assert of(stack, "201") == [10, 10, 170, 10, 10]
    assert of(stack, "202") == [10] * 5


def test_of_thousands_of_ticks_the_highest_is_drawn(tmp_path: Path) -> None:
    sums = [(number / 10, 500.0 if number == 4321 else 52.0) for number in range(1, 6000)]

    stack = drawn(tmp_path / "run", sums, process(201, 0.0, 600.0, [(0.1, 50), (300.0, 50)], 498))

    assert len(stack["at"]) < 700
    assert max(mib(map(sum, zip(*stack["kib"], strict=True)))) == 500
    assert max(of(stack, "201")) == 498


def test_all_add_up_to_what_all_had_and_no_process_to_less_than_nothing(tmp_path: Path) -> None:
    draw = random.Random(5)
    for turn in range(20):
        ticks = [number / 10 for number in range(1, 41)]
        sizes = {
            pid: [draw.uniform(1, 200) for _ in ticks] for pid in range(200, 200 + draw.randrange(1, 14))
        }
        lives = {pid: sorted(draw.sample(range(1, 40), 2)) for pid in sizes}
        sums = [
            2 + sum(size[n] for pid, size in sizes.items() if lives[pid][0] <= n < lives[pid][1])
            for n in range(len(ticks))
        ]
        processes = [
            process(
                pid,
                ticks[begin] - 0.05,
                ticks[end] - 0.05,
                [(ticks[n], size[n]) for n in range(begin, end) if (n - begin) % 10 == 0],
                max(size[begin:end]),
            )
            for pid, size in sizes.items()
            for begin, end in [lives[pid]]
        ]

        stack = drawn(tmp_path / str(turn), list(zip(ticks, sums, strict=True)), *processes)

        for total, values in zip(sums, zip(*stack["kib"], strict=True), strict=True):
            assert abs(sum(values) - total * 1024) <= len(values)
            assert min(values) >= 0
        for pid, values in zip(stack["pids"], stack["kib"], strict=False):
            if pid != 100:
                begin, end = lives[pid]
                assert not any(values[:begin])
                assert not any(values[end:])

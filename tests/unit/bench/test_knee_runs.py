"""The referee of what a memory limit costs a run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from otel_memwatch.wings.advice.bisection import Trial
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench import bench_knee
from tests.bench.knee_runs import Run, Verdict, verdict_of

MIB = 1 << 20
ALONE = {"seconds": 2.0, "read": 138 * MIB, "cpu": 1.0, "cgroup": 206 * MIB, "own_cgroup": 1}


def run(limit: int, stalls: tuple[float, float, float] | None = (0.0, 0.1, 0.0), **fields: Any) -> Run:
    """Return a run under a limit in MiB."""
    row = IndexedRun("", "", "finished", limit=limit * MIB or None, **(ALONE | fields))
    return Run(Trial(limit, row), stalls)


def verdict(one: Run, quickest: float = 2.0) -> Verdict:
    """Return the verdict on a run beside one without a limit."""
    return verdict_of(one, run(0), quickest)


def test_a_quick_run_that_read_again_is_unclear() -> None:
    """Three of 20 runs were counted as wrongly called slow. Imports had read 193 MiB instead of 138."""
    one = verdict(run(100, seconds=2.05, read=193 * MIB, cgroup=100 * MIB, starved=0.3))
    assert one.recognized
    assert (one.is_slow, one.is_quick, one.is_unclear, one.is_wrong) == (False, False, True, False)


def test_a_quick_run_that_read_nothing_again_may_not_be_called_slow() -> None:
    assert verdict(run(100, seconds=2.05, cgroup=100 * MIB, starved=0.3)).is_wrong
    assert not verdict(run(100, seconds=2.05, cgroup=100 * MIB)).is_wrong


def test_a_slow_run_has_to_be_called_slow() -> None:
    slow = {"seconds": 9.0, "read": 900 * MIB, "cgroup": 40 * MIB}
    assert verdict(run(40, (4.0, 3.0, 0.0), **slow)).is_wrong
    assert not verdict(run(40, (4.0, 3.0, 0.0), starved=0.4, **slow)).is_wrong


def test_reclaim_costs_cpu_time_beside_the_stalls() -> None:
    """Imports took 13.5 s instead of 1.9 in 33 MiB. Their stalls were 31 % of that."""
    one = verdict(run(33, (3.9, 4.3, 0.0), seconds=13.5, read=12429 * MIB, cgroup=33 * MIB, cpu=6.7))
    assert one.slowed == pytest.approx(1 / (1 - 4.2 / 13.5 - 5.45 / 13.5), rel=0.01)


def test_no_limit_costs_nothing() -> None:
    """A copy without a limit took 1.08 s instead of 0.25 beside other programs, and was counted as one to be called slow."""
    assert verdict(run(0, (0.0, 0.8, 0.0), seconds=4.0, cpu=1.5)).slowed == 1


def test_the_quickest_run_is_the_measure() -> None:
    """A limit of 103 MiB seemed to cost nothing: the run without a limit had waited for other programs."""
    limited = run(103, (0.1, 0.3, 0.0), seconds=2.0, read=400 * MIB, cgroup=103 * MIB)
    assert verdict(limited).slowed == 1
    assert verdict(limited, quickest=1.7).slowed == pytest.approx(1 / 0.9)


def test_a_run_that_wrote_and_seems_slow_is_compared_with_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy under a limit took 0.9 s, and the quickest without one 0.25: so did others without a limit."""
    wrote = {"written": 256 * MIB, "cgroup": 40 * MIB}
    seconds = {0: iter((0.9, 0.8, 0.3)), 40: iter((0.9, 0.9, 0.9))}
    monkeypatch.setattr(
        bench_knee,
        "run",
        lambda _pressure, _row, limit, _files, _before: run(
            limit, (0.5, 0.1, 0.0), **wrote, seconds=next(seconds[limit])
        ),
    )
    first = run(40, (0.5, 0.1, 0.0), **wrote, seconds=0.9)
    alone = run(0, (0.0, 0.1, 0.0), **wrote, seconds=0.25)
    assert verdict_of(first, alone, 0.25).is_slow
    row, none = IndexedRun("", "", "finished"), cast("Any", None)
    found = bench_knee.reviewed(none, row, set(), verdict_of(first, alone, 0.25), first)
    assert found.slowed == pytest.approx(1.125)

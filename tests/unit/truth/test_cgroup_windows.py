"""Memory that a cgroup needed between two samples, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.truth.cgroup_windows import charge_error, missed_seconds, needed_between_ticks, touched
from tests.support.run_directory import MIB


def test_charge_error() -> None:
    assert charge_error(8) == 2 * MIB


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, (199, 201)),
        # What the tree moved may have been cache at the worst moment and not at the ticks.
        ({"moved": 50}, (149, 251)),
        ({"file": 150}, (149, 201)),
        # 40 of the 100 cannot be dropped: memfd_secret, or pages of files that are locked.
        ({"locked": 40}, (199, 241)),
        ({"locked": 400}, (199, 301)),
        ({"top": None}, (None, 201)),
        ({"top": None, "ceiling": None}, (None, None)),
        ({"moved": None}, (None, 301)),
        ({"file_before": None}, (None, 301)),
        ({"reset_gap": 1e-9}, (199, 211)),
    ],
)
def test_needed_between_ticks(facts: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    tick = {"top": 300, "ceiling": 300, "file_before": 100, "file": 100, "moved": 0, "reset_gap": None}
    tick["locked"] = 0
    bounds = needed_between_ticks(**(tick | {"error": 1, "cpus": 2} | facts))
    assert bounds == expected


@pytest.mark.parametrize(
    ("ever", "expected"), [(None, 580 * 10**6), (80 * MIB, 0), (60 * MIB, 0), (100 * MIB, 20 * MIB)]
)
def test_a_peak_that_is_never_reset_bounds_what_a_late_reset_missed(ever: int | None, expected: int) -> None:
    assert touched(missed_seconds(0.058, 80 * MIB, ever, 2), 2) == pytest.approx(expected, abs=1)

"""Spikes of 5 ms, which are shorter than the time between two samples."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.bench.spikes import Spike, Window, compare, run

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("cgroup", ["auto", "off"])
def test_no_spike_is_missed(tmp_path: Path, cgroup: str) -> None:
    found = run(12, ["--cgroup", cgroup], tmp_path)
    assert found.planted == found.in_envelope == found.in_window == 12


@pytest.mark.parametrize(
    ("low", "high", "counts"),
    [
        (100, 100, (1, 1, 1, 1, 0)),
        (40, 160, (1, 1, 1, 0, 0)),  # a range
        (40, None, (1, 1, 1, 0, 0)),  # no upper bound
        (40, 90, (1, 0, 1, 0, 0)),  # missed
        (190, 190, (1, 1, 0, 0, 0)),  # more than there was
    ],
)
def test_how_spikes_are_counted(low: int, high: int | None, counts: tuple[int, ...]) -> None:
    window = Window(1.0, 2.0, low * MIB, None if high is None else high * MIB)
    assert compare([Spike(1.4, 1.41, 100 * MIB)], [window, Window(5.0, 6.0, 0, 0)]) == counts


def test_a_range_after_a_late_reset() -> None:
    window = Window(1.0, 2.0, 40 * MIB, 160 * MIB, gap=0.003)
    assert compare([Spike(1.4, 1.41, 100 * MIB)], [window]) == (1, 1, 1, 0, 1)

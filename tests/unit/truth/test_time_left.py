"""Growth and time left, case by case."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.time_left import Growth, growth


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(0.0, 100)], Growth(None)),
        ([(0.0, 100), (1.0, 100)], Growth(0.0)),
        ([(0.0, 100), (1.0, 50)], Growth(-50.0)),
        ([(0.0, 100), (1.0, 200)], Growth(100.0, 8.0, 8.0)),
        # Fast at first, slow now: 10 a second since the sample before, 205 over the longest window.
        ([(0.0, 100), (2.0, 500), (3.0, 510)], Growth(pytest.approx(410 / 3), 490 / (410 / 3), 49.0)),
        # It shrank just now: the limit may never be reached.
        ([(0.0, 100), (2.0, 500), (3.0, 400)], Growth(100.0, 6.0, None)),
        ([(0.0, 900), (1.0, 1200)], Growth(300.0, 0.0, 0.0)),
    ],
)
def test_growth(samples: list[tuple[float, int]], expected: Growth) -> None:
    assert growth(samples, 1000) == expected


def test_a_sample_outside_all_windows_does_not_count() -> None:
    assert growth([(0.0, 0), (10.0, 500), (14.0, 600)], 1000).rate == 25.0

"""Remarks beside the figures of an operation."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Peak, RecordedOperation
from otel_memwatch.reports.sections.operations import _remark
from otel_memwatch.run.results import OperationFigures

MIB = 1 << 20


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (Peak.interval(10 * MIB, 192 * MIB, estimate=54 * MIB), "best estimate 54.0 MiB"),
        (Peak.interval(0, 192 * MIB, estimate=54 * MIB), "best estimate 54.0 MiB"),
        (Peak.interval(50 * MIB, 56 * MIB, estimate=54 * MIB), ""),
        (Peak.interval(10 * MIB, None), ""),
        (Peak.exact(54 * MIB), ""),
        (None, ""),
    ],
)
def test_a_wide_range_has_its_best_estimate_beside_it(peak: Peak | None, expected: str) -> None:
    operation = RecordedOperation("step", 7, 1, 0.0, 1.0, "ok", "", "", None, None)
    figures = OperationFigures(operation, 0.0, 1.0, peak, None, {}, 0, None, sets_run_peak=False)
    assert _remark(figures) == expected

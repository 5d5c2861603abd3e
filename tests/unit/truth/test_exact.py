"""One definition of exact, for any number of processors."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime import kernel
from otel_memwatch.truth.cgroup import (
    lifetime_watermark,
    tree_from_cgroup,
)
from otel_memwatch.truth.cgroup_windows import charge_error
from otel_memwatch.truth.process import (
    process_peak,
)
from otel_memwatch.truth.processes import (
    largest_process,
)
from tests.support.run_directory import MIB


@pytest.mark.parametrize("processors", [1, 2, 3, 4, 16, 64, 256])
@pytest.mark.parametrize("size", [9 * MIB, 69 * MIB, 300 * MIB, 20_000 * MIB, 400_000 * MIB])
def test_exact_is_one_thing_on_every_machine(processors: int, size: int) -> None:
    """With 64 processors, 69 MiB are 0 to 164 MiB and not exact."""
    error = kernel.rss_error(1, processors, "6.12")
    charged = charge_error(processors)
    for off, peak in (
        (error, process_peak(size, size, error, 0)),
        (error, largest_process(size, size, size, error, 0, at=None, pid=None)),
        (error, largest_process(0, size, size, error, 0, at=None, pid=None)),
        (charged, lifetime_watermark(MIB, size, charged)),
        (charged, tree_from_cgroup(max(0, size - charged), size + charged)),
    ):
        assert peak is not None
        assert (peak.low, peak.high) == (max(0, size - off), size + off)
        exact = off <= max(MIB, size / 200)
        assert peak.certainty is (Certainty.EXACT if exact else Certainty.INTERVAL)
        assert exact or peak.estimate in (size, None)
        assert Peak.from_json(peak.to_json()) == peak


def test_an_exact_figure_of_an_older_version_is_a_range_if_its_error_is_large() -> None:
    old = Peak(69 * MIB, Certainty.EXACT, 0, 164 * MIB, evidence=(Evidence.PROCESS_PEAK,))
    new = Peak.from_json(old.to_json())
    assert new == Peak.interval(0, 164 * MIB, evidence=(Evidence.PROCESS_PEAK,), estimate=69 * MIB)

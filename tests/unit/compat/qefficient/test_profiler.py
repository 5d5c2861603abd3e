"""The profiler as harnesses of the older tool use it."""

from __future__ import annotations

import pytest

from otel_memwatch.compat.qefficient.profiler import QEffMemoryProfiler


def test_a_harness_that_collects_samples_goes_on() -> None:
    profiler = QEffMemoryProfiler()
    sample = profiler.metrics_collector.collect_sample()
    with pytest.warns(UserWarning, match="ignored"):
        profiler.samples.append(sample)
    profiler._update_peaks(sample)
    assert profiler.samples == []
    with pytest.raises(TypeError, match="copy"):
        profiler.samples.clear()

"""A profiler that is started twice: what was recorded before stays, in every figure."""

import itertools
import re
import time
import warnings

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler()
profiler.start_monitoring()
profiler.mark_operation(operation_name="A")
kept = bytearray(200 << 20)
time.sleep(0.3)
del kept
profiler.stop_monitoring()
first = len(profiler.samples)
profiler.start_monitoring()
profiler.mark_segment(segment_name="B")
time.sleep(0.3)
profiler.stop_monitoring()
assert [name for _, name in profiler.operations] == ["A", "Completion", "B", "Completion"]
samples = profiler.samples
assert len(samples) >= first + 3, (first, len(samples))
assert all(a.timestamp <= b.timestamp for a, b in itertools.pairwise(samples))
assert all(sample.rss_mb <= sample.vms_mb for sample in samples)
assert profiler.peak_rss > 200
assert profiler.peak_rss == max(profiler.rss_memory)
assert profiler.peak_operation == "A"
report = profiler.get_memory_report()
assert "   \u2022 Operations:     4\n" in report, report
assert re.search(r"1\. .* - A .*\n.* - Completion.*\n.* - B .*\n.* - Completion", report), report
assert "Peak during:    A" in report, report
try:
    samples.clear()
except TypeError as error:
    assert "copy" in str(error)
else:
    raise AssertionError("a change that changes nothing was not told")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    samples.append(samples[0])
assert "ignored" in str(caught[0].message), caught
assert len(profiler.samples) == len(samples)
try:
    profiler.generate_memory_graph("missing/x.png")
except FileNotFoundError as error:
    assert error.filename == "missing/x.png"
else:
    raise AssertionError("a missing directory was not told")

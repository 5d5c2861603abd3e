"""A phase that allocates, then one that holds the interpreter."""

import itertools
import re
import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler(sampling_interval=0.05)
profiler.start_monitoring()
profiler.mark_operation("Allocate")
a = bytearray(500 << 20)
profiler.mark_operation("GILhold")
held, length = 0, 24
while held < 1:
    began = time.monotonic()
    re.match(r"(a+)+$", "a" * length + "b")
    held = time.monotonic() - began
    length += 1
profiler.stop_monitoring()
times = profiler.get_synchronized_data()["timestamps"]
print(
    held,
    max(b - a for a, b in itertools.pairwise(times)),
    profiler.operation_memory_deltas["GILhold"],
    profiler.operation_memory_deltas["Allocate"],
)
print(profiler.get_memory_report())

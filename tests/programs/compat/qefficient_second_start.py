"""A profiler that is started twice."""

import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler()
for name in ("one", "two"):
    profiler.start_monitoring()
    profiler.mark_operation(name)
    time.sleep(0.2)
    profiler.stop_monitoring()
assert [name for _, name in profiler.operations] == ["one", "Completion", "two", "Completion"]
assert len(profiler.samples) >= 3
assert "two" in profiler.get_memory_report()

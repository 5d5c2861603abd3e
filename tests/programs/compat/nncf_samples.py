"""How many samples a monitor has: not more than fit its interval."""

import itertools
import time

from otel_memwatch.compat.nncf import MemoryMonitor, MemoryType, memory_monitor_context

for kind in MemoryType:
    began = time.monotonic()  # the first sample is taken while it starts
    monitor = MemoryMonitor(interval=0.1, memory_type=kind).start()
    time.sleep(1.5)
    monitor.stop()
    most = (time.monotonic() - began) / 0.1 + 1
    times, _ = monitor.get_data()
    assert len(times) <= most + 1e-6, times
    # The peak may stand between two as one of its own.
    assert sum(b - a < 0.09 for a, b in itertools.pairwise(times)) <= 2, times
with memory_monitor_context(interval=0.05) as context:
    time.sleep(0.1)
assert set(context.memory_monitors) == set(MemoryType)
assert context.memory_monitors[MemoryType.RSS].interval == 0.05

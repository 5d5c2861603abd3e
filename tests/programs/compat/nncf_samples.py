"""How many samples a monitor has: not more than fit its interval."""

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
with memory_monitor_context(interval=0.05) as context:
    time.sleep(0.1)
assert set(context.memory_monitors) == set(MemoryType)
assert context.memory_monitors[MemoryType.RSS].interval == 0.05

# While memory moves, the monitor samples more often than asked for.
began = time.monotonic()
moving = MemoryMonitor(interval=0.1).start()
while time.monotonic() < began + 2:
    block = bytearray(60 << 20)
    del block
    time.sleep(0.02)
moving.stop()
times, memory = moving.get_data()
assert len(times) <= (time.monotonic() - began) / 0.1 + 3, times
assert max(memory) - min(memory) > 55, memory

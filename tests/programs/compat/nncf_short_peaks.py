"""Eight peaks of 400 MiB, each shorter than the interval."""

from otel_memwatch.compat.nncf import MemoryMonitor, MemoryUnit

for _ in range(8):
    with MemoryMonitor(interval=0.1, memory_unit=MemoryUnit.MiB) as monitor:
        blip = bytearray(400 << 20)
        del blip
    print(max(monitor.get_data(memory_from_zero=True)[1]))

"""A child that writes 200 MB, five at a time."""

import subprocess
import sys
import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler()
profiler.start_monitoring()
profiler.mark_operation("Write")
while not profiler.samples:  # totals count from the first sample
    time.sleep(0.01)
child = "import time; f = open('out', 'wb')\nfor _ in range(40): f.write(b'x' * (5 << 20)); f.flush(); time.sleep(0.03)"
subprocess.run([sys.executable, "-c", child])
profiler.stop_monitoring()
samples = profiler.samples
print(
    max(profiler.disk_write_rate),
    samples[-1].disk_write_mb - samples[0].disk_write_mb,
    samples[-1].storage_write_mb - samples[0].storage_write_mb,
)
print(profiler.get_memory_report())

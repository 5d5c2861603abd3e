"""A child that allocates beside another one, and two phases of one name."""

import subprocess
import sys
import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

other = subprocess.Popen(["sleep", "60"])
profiler = QEffMemoryProfiler()
profiler.start_monitoring()
time.sleep(0.3)
profiler.mark_operation("Export")
subprocess.run([sys.executable, "-c", "import time; a = bytearray(400 << 20); time.sleep(1)"])
profiler.mark_operation("Export")
a = bytearray(100 << 20)
profiler.stop_monitoring()
other.kill()
other.wait()
print(profiler.peak_rss, profiler.peak_operation)
print(profiler.get_memory_report())

"""Children that write between marks: idle phases have none of it."""

import re
import subprocess
import sys
import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

WRITE = "open('out', 'wb').write(bytes(30_000_000))"
profiler = QEffMemoryProfiler()
profiler.start_monitoring()
for number in range(3):
    profiler.mark_operation(f"write{number}")
    subprocess.run([sys.executable, "-c", WRITE], check=True)
    profiler.mark_operation(f"idle{number}")
    time.sleep(0.2)
profiler.stop_monitoring()

from otel_memwatch.compat.qefficient.phases.timeline import Selection, timeline  # noqa: E402
from otel_memwatch.run import load  # noqa: E402

(part,) = profiler._parts
phases = timeline(load(part.recording.path), Selection(part.windows, profiler._id)).phases
written = {phase.name: phase.written for phase in phases if not phase.end_mark}
for name, number in written.items():
    expected = 30_000_000 if name.startswith("write") else 0
    assert abs(number - expected) < 300_000, written
assert re.search(r"Total Write:    \d+", profiler.get_memory_report())

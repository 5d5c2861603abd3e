"""A record of 40 000 ticks, read and reported by the program."""

import re
import time
from pathlib import Path

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler(sampling_interval=0.05)
profiler.start_monitoring()
profiler.mark_operation("Work")
time.sleep(0.3)
profiler.stop_monitoring()
path = profiler._parts[0].recording.path / "samples.jsonl"
header, *ticks = path.read_text().splitlines()
began, ended = profiler._parts[0].windows[0]
profiler._parts[0].windows[0] = (began, ended + 1e6)
last = ticks[1].partition(",")[2]
with path.open("a") as file:
    for i in range(40_000):
        file.write(f"[{ended + i * 0.05:.4f},{last}\n")


def high() -> int:
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


Path("/proc/self/clear_refs").write_text("5")
before = high()
assert profiler.peak_rss > 1
report = profiler.stop_and_save("x.png")
print(high() - before)
print(report)
print(ticks)

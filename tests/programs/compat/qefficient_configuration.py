"""Settings, marks and raw data, as in the profiler's document."""

import re
import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

profiler = QEffMemoryProfiler(
    sampling_interval=0.1,  # Sample every 100ms
    output_file="my_profile.png",  # Custom output file
    verbose=False,
    enable_cpu_monitoring=True,  # Monitor CPU usage
    enable_disk_monitoring=True,  # Monitor disk I/O
)

assert profiler.get_memory_report() == "No memory data collected"
assert profiler.get_synchronized_data() == {}
assert profiler.samples == []
assert profiler.peak_rss == 0.0
profiler.start_monitoring()
profiler.start_monitoring()
assert profiler.monitoring
assert profiler.current_operation == "Initialization"
profiler.mark_operation("Custom Operation 1")
a = bytearray(40 << 20)
time.sleep(0.3)
profiler.mark_segment("Custom Operation 2")
time.sleep(0.3)
profiler.stop_monitoring()
profiler.stop_monitoring()

# Get synchronized data arrays
data = profiler.get_synchronized_data()
timestamps = data["timestamps"]
memory_usage = data["rss_memory"]
cpu_usage = data["cpu_usage"]
assert set(data) == {
    "timestamps",
    "rss_memory",
    "vms_memory",
    "cpu_usage",
    "disk_read_bytes",
    "disk_write_bytes",
    "disk_read_rate",
    "disk_write_rate",
}
assert len({len(values) for values in data.values()}) == 1
assert timestamps[0] == 0
assert len(timestamps) >= 5
assert memory_usage == profiler.rss_memory
assert cpu_usage == profiler.cpu_usage
assert 35 < max(memory_usage) - memory_usage[0] < 50
assert all(vms > 5 for vms in profiler.vms_memory)

# Access individual samples
for sample in profiler.samples:
    print(f"Time: {sample.timestamp}, RSS: {sample.rss_mb} MB")

assert [name for _, name in profiler.operations] == ["Custom Operation 1", "Custom Operation 2", "Completion"]
assert 38 < profiler.operation_memory_deltas["Custom Operation 1"] < 42
assert abs(profiler.operation_memory_deltas["Custom Operation 2"]) < 1
assert set(profiler.operation_durations) == {"Custom Operation 1", "Custom Operation 2"}
assert profiler.peak_rss >= max(memory_usage)
assert profiler.peak_rss_time
assert profiler.peak_vms_time
assert profiler.peak_operation.startswith("Custom Operation")
assert (profiler.sampling_interval, profiler.output_file, profiler.verbose) == (0.1, "my_profile.png", False)
assert profiler.get_memory_usage()[0] > 40
report = profiler.stop_and_save()
assert re.search(r"Custom Operation 1 .*\[\+40\.\d MB\]", report), report
try:
    QEffMemoryProfiler(nonsense=1)
except TypeError:
    pass
else:
    raise SystemExit("an unknown setting was taken")

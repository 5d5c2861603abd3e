"""Peaks before the first mark, without any mark, and after a second start: each is exact."""

import time

from otel_memwatch.compat.qefficient import QEffMemoryProfiler

MIB = 1 << 20


def blip(size: int) -> None:
    time.sleep(0.25)
    block = bytearray(size * MIB)
    del block
    time.sleep(0.15)


def in_report(profiler: QEffMemoryProfiler) -> str:
    report = profiler.get_memory_report()
    return next(line.split(":")[1].strip() for line in report.splitlines() if "Peak during" in line)


unmarked = QEffMemoryProfiler()
unmarked.start_monitoring()
before = unmarked.metrics_collector.get_memory_usage()[0]
blip(120)
unmarked.stop_monitoring()
assert 119 < unmarked.peak_rss - before < 124, (unmarked.peak_rss, before)
assert unmarked.peak_operation == in_report(unmarked) == "Initialization"
assert "Operations:     1\n" in unmarked.get_memory_report(), "the mark at the end alone"

late = QEffMemoryProfiler()
late.start_monitoring()
blip(120)
late.mark_operation("Export")
kept = bytearray(40 * MIB)
time.sleep(0.2)
del kept
late.stop_monitoring()
assert 119 < late.peak_rss - before < 130, (late.peak_rss, before)
assert late.peak_operation == in_report(late) == "Initialization"
assert [name for _, name in late.operations] == ["Export", "Completion"]
late.start_monitoring()
durations = dict(late.operation_durations)
blip(200)
assert late.operation_durations == durations
late.stop_monitoring()
assert 199 < late.peak_rss - before < 210, (late.peak_rss, before)
assert late.peak_operation == "Export", "the last phase that was marked"

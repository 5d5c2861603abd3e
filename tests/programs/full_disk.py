"""Records into the directory of its first argument until the disk is full, and a thousand ticks more."""

from __future__ import annotations

import sys
from pathlib import Path

from otel_memwatch.model import Column, Snapshot
from otel_memwatch.monitor.run.run_directory import create_directory
from otel_memwatch.record.writer import RunWriter

run = Path(sys.argv[1]) / "run"
create_directory(run)
w = RunWriter(run, lambda sentence: print("TOLD", sentence))
w.update(state="running")
w.columns([Column("process.memory.usage")])
tick = 0
while w.stopped is None:
    w.tick(Snapshot(float(tick), 0.0, (10**15 + tick,)))
    tick += 1
for late in range(1000):
    w.tick(Snapshot(float(tick + late), 0.0, (1,)))
written = w.update(state="finished")
print("MISSING", w.missing, w.last_tick, written, w.written)
w.close()
print("TICKS", tick)

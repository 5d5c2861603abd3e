"""Epochs measured by the meter alone."""

import os

from otel_memwatch.compat.callbacks import EpochMeter
from tests.support import counters

meter = EpochMeter(report=print)
assert meter.end_epoch() is None
meter.begin_training()
for epoch in range(2):
    meter.begin_epoch(epoch)
    blip = bytearray(60 << 20)
    del blip
    if epoch:
        kept = bytearray(30 << 20)
    meter.end_epoch()
    meter.end_epoch()
meter.begin_epoch(7)
meter.end_training()
meter.end_training()
first, second = meter.epochs
assert (first.epoch, second.epoch) == (0, 1)
assert abs(first.cpu_used) < 1 << 20
assert 59 << 20 < first.cpu_peaked < 61 << 20, first
assert 29 << 20 < second.cpu_used < 31 << 20
assert 29 << 20 < second.cpu_peaked < 31 << 20, second
assert first.certainty == counters.of_process(100 << 20)
assert first.gpu_used == first.gpu_peaked == 0
assert os.listdir(".") == [], os.listdir(".")

"""Fifteen cells that do nothing."""

import threading

from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
cell("%imu_start")
before = threading.active_count()
for _ in range(15):
    cell("pass")
print("threads:", threading.active_count() - before)

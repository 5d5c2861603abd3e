"""Counting events where perf is not installed."""

from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
cell("%imu_start --perf")
cell("pass")

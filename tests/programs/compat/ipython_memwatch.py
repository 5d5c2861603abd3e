"""%memwatch and %%memwatch."""

import os

from otel_memwatch.compat import ipython as imu
from tests.support.ipython_shell import cell, shell

cell("%load_ext otel_memwatch")
result = cell("%memwatch y = bytearray(50 << 20)").result
assert 49 < result.memory_delta < 51, result
assert shell.user_ns["y"], result
result = cell("%%memwatch\nz = bytearray(80 << 20)\ndel z\n").result
assert 79 < result.memory_peak < 81, result
assert abs(result.memory_delta) < 1, result
assert not cell("%memwatch 1/0").success

assert [c.failed for c in imu.history] == [False, False, True]
assert "memwatch-runs" not in os.listdir(".")

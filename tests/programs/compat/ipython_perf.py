"""Events of perf in a cell."""

from otel_memwatch.compat import ipython as imu
from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
assert not cell("%imu_start --perf no-such-event").success
cell("%imu_start --perf page-faults")
cell("x = bytearray(40 << 20)")

(count,) = imu.last.counts
assert count.event == "page-faults", count
assert 10000 < count.value < 30000, count

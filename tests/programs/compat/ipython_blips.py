"""Twenty cells with a blip each."""

from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
cell("%imu_start")
for _ in range(20):
    cell("x = bytearray(64 << 20); del x")

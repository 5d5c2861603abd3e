"""Children that end before a sample sees their peak: the kernel knows it, or the line says that it was sampled."""

from otel_memwatch.compat import ipython as imu
from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("import subprocess, sys")
for size in (200, 240, 280):
    cell(f"subprocess.run([sys.executable, '-S', '-c', 'a = bytearray({size} << 20)']);")
cell("subprocess.run(['true']);")
for _ in range(3):
    cell("import time; x = bytearray(30 << 20); time.sleep(0.25)")
*children, quick, first, second, third = imu.history[-7:]
peaks = [child.memory_peak for child in children]
assert all(size < peak < size + 25 for size, peak in zip((200, 240, 280), peaks, strict=True)), peaks
assert [child.certainty for child in children] == ["sampled"] * 3
assert quick.certainty == "sampled", "the peak of a child that ended is not known"
assert quick.memory_peak < 30
assert [held.certainty for held in (first, second, third)] == ["exact"] * 3, "samples of this process alone"

"""A cell that waits for a child with 400 MiB, beside another child."""

from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("import subprocess, sys; other = subprocess.Popen(['sleep', '60'])")
cell("subprocess.run([sys.executable, '-c', 'import time; a = bytearray(400 << 20); time.sleep(1)']);")
cell("other.kill(); other.wait();")

"""The session of the document of ipython_memory_usage."""

from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch.compat.ipython")
cell("%imu_start")
cell("import numpy as np")
cell("np.ones(int(1e7));")
cell("a = np.random.random((int(3e3),int(1e3)))")
cell("b = a*2")
cell("a *= 2")
cell("a = np.sqrt(a, out=a)")
cell("a = np.ones(int(1e6)); b = np.ones(int(1e6)); c = np.ones(int(1e6))")
cell("d = a * b + c")
cell("%imu_stop")
cell("pass")

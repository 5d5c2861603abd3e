"""Starting, stopping, unloading and loading in every order."""

from tests.support.ipython_shell import cell, shell

cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("%imu_start")
cell("pass")
cell("%imu_stop")
cell("%imu_stop")
cell("%ipython_memory_usage_start")
cell("%ipython_memory_usage_stop")
cell("%imu_start")
cell("%unload_ext otel_memwatch")
cell("pass")
assert not cell("%imu_start").success
assert not [
    f for fs in shell.events.callbacks.values() for f in fs if "memwatch" in str(getattr(f, "__module__", ""))
]
cell("%load_ext otel_memwatch")
cell("%imu_start")
assert not cell("%imu_start nonsense").success

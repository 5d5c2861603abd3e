"""Three monitors that save their logs at exit: the second example of NNCF's document."""

import gc
import time
from functools import partial
from pathlib import Path

from nncf_allocate import allocate_memory

from otel_memwatch.compat.nncf import MemoryMonitor, MemoryType

save_dir = Path("memory_logs")


def log(mm, fz):
    mm.save_memory_logs(
        *mm.get_data(memory_from_zero=fz), save_dir=save_dir, filename_suffix="_from-zero" if fz else ""
    )


memory_monitor_configurations = [
    (MemoryType.RSS, False),
    (MemoryType.SYSTEM, False),
    (MemoryType.SYSTEM, True),
]
for memory_type, mem_from_zero in memory_monitor_configurations:
    memory_monitor = MemoryMonitor(memory_type=memory_type)
    memory_monitor.start(at_exit_fn=partial(log, memory_monitor, mem_from_zero))

a = allocate_memory()
del a
gc.collect()
time.sleep(0.3)

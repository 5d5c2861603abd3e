"""Both kinds of memory over a block: the third example of NNCF's document."""

import gc
import time

from nncf_allocate import allocate_memory

from otel_memwatch.compat.nncf import MemoryType, memory_monitor_context

with memory_monitor_context(
    return_max_value=True,
    save_dir="memory_logs",
) as mmc:
    a = allocate_memory()
    del a
    gc.collect()
    time.sleep(0.2)

max_memory_usage: float = mmc.memory_data[MemoryType.SYSTEM]
print(max_memory_usage, mmc.memory_data[MemoryType.RSS])

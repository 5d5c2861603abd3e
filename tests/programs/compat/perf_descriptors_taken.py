"""A cell that closes the descriptors of the counter and opens files under their numbers."""

import os

from otel_memwatch.compat.ipython.perf import PerfCounter

counter = PerfCounter("page-faults")
counter.start()
used = [int(name) for name in os.listdir("/proc/self/fd") if int(name) >= 3]
os.closerange(3, 4096)
for number in used:
    opened = os.open(f"mine{number}", os.O_RDWR | os.O_CREAT)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
assert len(used) > 3
assert counter.stop() == []
assert all(os.fstat(number).st_size == 0 for number in used)

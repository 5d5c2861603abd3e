"""A fixed amount of work for the processor; writes its wall and CPU seconds to the file named."""

import sys
import time

wall, cpu = time.perf_counter(), time.process_time()
total = 0
for number in range(12_000_000):
    total += number & 7
with open(sys.argv[1], "w") as out:
    out.write(f"{time.perf_counter() - wall} {time.process_time() - cpu}")

"""A heap that grows to 400 MiB in steps of 8 and shrinks again."""

import sys
import time

step = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
heap = []
for _ in range(50):
    heap.append(b"\1" * (8 << 20))
    time.sleep(step)
while heap:
    heap.pop()
    time.sleep(step)

"""A child enters the control group of the argument, takes 20 MiB there with as few page faults as the machine has, and ends."""

import mmap
import os
import sys
import time

if not os.fork():
    with open(f"{sys.argv[1]}/cgroup.procs", "w") as file:
        file.write("0")
    held = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.madvise(mmap.MADV_HUGEPAGE)
    for place in range(0, len(held), mmap.PAGESIZE):
        held[place] = 1
    os._exit(0)
os.wait()
time.sleep(0.2)

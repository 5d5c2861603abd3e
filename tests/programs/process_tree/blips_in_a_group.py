"""Three children with random blips of memory, in the control group of the argument."""

import os
import random
import sys
import time

with open(f"{sys.argv[1]}/cgroup.procs", "w") as file:
    file.write("0")
for seed in range(3):
    if not os.fork():
        r = random.Random(seed)
        for _ in range(12):
            b = bytearray(r.randrange(5, 60) << 20)
            time.sleep(r.random() / 50)
            del b
            time.sleep(r.random() / 50)
        os._exit(0)
for _ in range(3):
    os.wait()

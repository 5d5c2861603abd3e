"""A child enters the control group of the argument, holds 200 MiB (or as many as are asked for) there for 40 ms, and ends."""

import os
import sys
import time

if not os.fork():
    with open(f"{sys.argv[1]}/cgroup.procs", "w") as file:
        file.write("0")
    held = bytearray(int((sys.argv[2:] or ["200"])[0]) << 20)
    time.sleep(0.04)
    os._exit(0)
os.wait()
time.sleep(0.2)

"""A child holds 100 MiB, enters the control group of the argument with them, and holds 200 MiB more there."""

import os
import sys
import time

if not os.fork():
    held = bytearray(100 << 20)
    time.sleep(0.3)
    with open(f"{sys.argv[1]}/cgroup.procs", "w") as file:
        file.write("0")
    more = bytearray(200 << 20)
    time.sleep(1)
    os._exit(0)
os.wait()

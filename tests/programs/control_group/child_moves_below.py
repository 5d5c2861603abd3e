"""A child makes a control group below its group, holds 200 MiB in it for most of a second, and the group is removed."""

import os
import sys
import time

with open("/proc/self/cgroup") as file:
    paths = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in file}
below = f"{sys.argv[1]}/{os.path.basename(paths.get('memory', paths.get('')))}/below"
os.mkdir(below)
if not os.fork():
    with open(f"{below}/cgroup.procs", "w") as file:
        file.write("0")
    held = bytearray(200 << 20)
    time.sleep(0.8)
    os._exit(0)
os.wait()
os.rmdir(below)

"""A child in a control group below its parent's writes a file of 100 MiB twice and deletes it, and holds next to nothing."""

import os
import sys
import time

with open("/proc/self/cgroup") as file:
    paths = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in file}
below = f"{sys.argv[1]}/{os.path.basename(paths.get('memory', paths.get('')))}/below"
os.mkdir(below)
for _ in range(2):
    if not os.fork():
        with open(f"{below}/cgroup.procs", "w") as file:
            file.write("0")
        held = bytearray(20 << 20)
        with open(sys.argv[2], "wb") as file:
            for part in range(100):
                file.write(bytes(1 << 20))
                time.sleep(0.002 * (part % 7 == 0))
            time.sleep(0.3)
        os.unlink(sys.argv[2])
        os._exit(0)
    os.wait()
os.rmdir(below)

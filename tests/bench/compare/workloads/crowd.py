"""N processes, itself included, that do nothing for a time; writes "pid cpu_seconds" to the file named."""

import os
import resource
import sys
import time

path, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + seconds
with open(path, "w") as out:
    out.write(f"{os.getpid()}\n")
children = []
for _ in range(count - 1):
    child = os.fork()
    if child == 0:
        time.sleep(max(0.0, end - time.monotonic()))
        os._exit(0)
    children.append(child)
time.sleep(max(0.0, end - time.monotonic()))
for child in children:
    os.waitpid(child, 0)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
with open(path, "a") as out:
    out.write(f"{sum(one.ru_utime + one.ru_stime for one in used)}\n")

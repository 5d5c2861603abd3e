"""Children whose numbers are those of children that have ended; needs a separate pid namespace."""

from __future__ import annotations

import os
import time

born = 1


def lines():
    with open(os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "processes.jsonl"), "rb") as file:
        return file.read().count(b'"event":"seen"')


def child(mib):
    global born
    born += 1
    pid = os.fork()
    if pid == 0:
        kept = bytearray(mib << 20)
        time.sleep(0.05)
        while lines() < born:
            time.sleep(0.01)
        os._exit(0)
    return pid


first = child(8)
os.waitpid(first, 0)
seen = [first]
for step in range(6):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(first - 1 + step % 2))
    pid = child(16 + step)
    seen.append(pid)
    os.waitpid(pid, 0)
print(len(seen), len(set(seen)))

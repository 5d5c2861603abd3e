"""Four workers that each have 100 MiB of their own for 0.3 s, at the same time."""

import os
import time

start = time.monotonic() + 0.6
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        block = b"\1" * (100 << 20)
        time.sleep(max(0.0, start + 0.3 - time.monotonic()))
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
time.sleep(0.3)

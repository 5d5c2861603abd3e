"""512 MiB that five processes share."""

import os
import time

block = b"\1" * (512 << 20)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        time.sleep(1.2)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)

"""A child that writes 64 MiB to a file in a second, and ends."""

import os
import time

child = os.fork()
if child == 0:
    block = b"\1" * (1 << 20)
    with open("written", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(block)
            time.sleep(0.015)
    os._exit(0)
os.waitpid(child, 0)
os.unlink("written")
time.sleep(0.3)

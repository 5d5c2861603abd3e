"""100 processes one after the other, each with 16 MiB of private memory and 2 ms of work."""

import os
import time

for _ in range(100):
    child = os.fork()
    if child == 0:
        block = b"\1" * (16 << 20)
        end = time.process_time() + 0.002
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(child, 0)

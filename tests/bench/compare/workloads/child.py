"""A child that fills 300 MiB, keeps them for 30 ms and ends."""

import os
import time

time.sleep(0.5)
child = os.fork()
if child == 0:
    block = b"\1" * (300 << 20)
    time.sleep(0.03)
    os._exit(0)
os.waitpid(child, 0)
time.sleep(0.5)

"""Children hold 30 and 60 MiB beside the 100 MiB of their parent."""

import os
import time

for size in (30, 60):
    if not os.fork():
        block = bytearray(size << 20)
        time.sleep(1)
        os._exit(0)
block = bytearray(100 << 20)
time.sleep(0.8)
os.wait()
os.wait()

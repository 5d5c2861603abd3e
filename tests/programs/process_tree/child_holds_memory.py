"""A child holds 40 MiB for a second."""

import os
import time

if not os.fork():
    b = bytearray(40 << 20)
    time.sleep(1)
    os._exit(0)
os.wait()

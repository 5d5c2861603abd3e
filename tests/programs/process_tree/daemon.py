"""A daemon leaves its parent, holds 50 MiB, writes 3 MiB and ends with exit code 7."""

import os
import time

if not os.fork():
    os.setsid()
    if not os.fork():
        b = bytearray(50 << 20)
        time.sleep(0.6)
        with open("/dev/null", "wb") as f:
            f.write(bytes(3 << 20))
        os._exit(7)
    os._exit(0)
os.wait()
time.sleep(1.0)

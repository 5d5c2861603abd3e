"""128 MiB, filled and given back 5 ms later."""

import time

time.sleep(0.6)
block = b"\1" * (128 << 20)
time.sleep(0.005)
del block
time.sleep(0.6)

"""1 GiB, filled and given back 5 ms later."""

import time

time.sleep(0.4)
block = b"\1" * (1 << 30)
time.sleep(0.005)
del block
time.sleep(0.4)

"""Twelve children, one after the other, write 4 MiB each to files whose names begin with the argument."""

import os
import sys

for i in range(12):
    if not os.fork():
        with open(sys.argv[1] + str(i), "wb") as f:
            f.write(bytes(4 << 20))
        os._exit(0)
    os.wait()

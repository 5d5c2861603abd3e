"""400 MiB for a moment, then 100 MiB for a long time; writes its pid to the file named once the peak is over."""

import os
import sys
import time

block = b"\1" * (400 << 20)
time.sleep(1.2)
del block
rest = b"\1" * (100 << 20)
with open(sys.argv[1], "w") as out:
    out.write(f"{os.getpid()}\n")
time.sleep(8)

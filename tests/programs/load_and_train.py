"""Two operations, each for half of the seconds given; the first holds 70 MiB."""

import sys
import time

from otel_memwatch.in_target.operations import operation

seconds = float(sys.argv[1])
with operation("Load"):
    block = b"x" * (70 << 20)
    time.sleep(seconds / 2)
with operation("Train", batch=7):
    time.sleep(seconds / 2)
print("done")

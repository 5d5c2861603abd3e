"""300 MiB are touched and freed; then the file of the argument is made."""

import sys
import time

b = bytearray(300 << 20)
del b
open(sys.argv[1], "w").close()
time.sleep(0.5)

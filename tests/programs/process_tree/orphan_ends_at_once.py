"""A grandchild is orphaned and ends with exit code 9; then the file of the argument is made."""

import os
import sys
import time

if not os.fork():
    if not os.fork():
        os._exit(9)
    os._exit(0)
os.wait()
time.sleep(0.2)
open(sys.argv[1], "w").close()

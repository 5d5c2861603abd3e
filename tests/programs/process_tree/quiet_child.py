"""A child sleeps; the file of the argument is made when it has begun."""

import os
import sys
import time

if not os.fork():
    time.sleep(1.2)
    os._exit(0)
open(sys.argv[1], "w").close()
time.sleep(1)
os.wait()

"""A child uses 0.4 s of CPU time; its parent ignores SIGCHLD and outlives it."""

import os
import signal
import time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if not os.fork():
    while os.times().user + os.times().system < 0.4:
        pass
    time.sleep(0.5)
    os._exit(0)
time.sleep(2)

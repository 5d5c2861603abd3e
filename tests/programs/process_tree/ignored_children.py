"""50 children end at once; their parent ignores SIGCHLD."""

import os
import signal
import time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
time.sleep(0.3)
for _ in range(50):
    if not os.fork():
        os._exit(0)
time.sleep(0.3)

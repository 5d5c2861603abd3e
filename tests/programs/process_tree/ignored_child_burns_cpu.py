"""A child whose end its parent ignores uses 0.4 s of CPU; the parent lives on until the child has gone."""

import os
import signal
import time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ended, lives = os.pipe()
if not os.fork():
    while os.times().user + os.times().system < 0.4:
        pass
    time.sleep(0.5)
    os._exit(0)
os.close(lives)
os.read(ended, 1)
time.sleep(0.5)

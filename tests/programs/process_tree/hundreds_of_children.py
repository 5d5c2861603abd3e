"""300 children live for 1.5 s and are killed."""

import os
import time

children = []
for _ in range(300):
    pid = os.fork()
    if not pid:
        time.sleep(60)
    children.append(pid)
time.sleep(1.5)
for pid in children:
    os.kill(pid, 9)
for pid in children:
    os.waitpid(pid, 0)

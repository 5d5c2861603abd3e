"""Leaves orphans in quick succession, and waits until none of them is a zombie."""

from __future__ import annotations

import os
import time

for number in range(100):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os._exit(number)
        os._exit(0)
    os.wait()


def zombies():
    found = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


while zombies():
    time.sleep(0.01)

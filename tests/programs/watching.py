"""What programs that have themselves recorded have in common."""

import os

from otel_memwatch import MemwatchError, attach, load_run, watch  # noqa: F401 (for the programs that begin with this text)

fast = {"plot": False, "quiet": True, "interval": 0.02}


def monitors():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if b"--stop-fd" in b" ".join(words) and os.getcwd().encode() in b" ".join(words):
            found.append(int(pid))
    return found

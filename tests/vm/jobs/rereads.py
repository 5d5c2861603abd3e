"""Reads a file from a cold page cache: in order and once by calls, or pages at random through a mapping.

rereads.py TRUTH once|again DATA: TRUTH gets the seconds.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import time
from pathlib import Path

TOUCHES = 20_000

truth, mode, data = sys.argv[1:]
file = os.open(data, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
begun = time.monotonic()
if mode == "once":
    while os.read(file, 1 << 20):
        pass
else:
    mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    lots = random.Random(1)
    for _ in range(TOUCHES):
        mapped[int(lots.random() * len(mapped))]
Path(truth).write_text(json.dumps({"seconds": time.monotonic() - begun}))

"""Calls that hold the interpreter for longer and longer, for two seconds."""

import itertools
import re
import time

from otel_memwatch.compat.nncf import MemoryMonitor

with MemoryMonitor(interval=0.05) as monitor:
    began = time.monotonic()
    length = 24
    while time.monotonic() - began < 2:  # each match holds the interpreter for its whole time
        call = time.monotonic()
        re.match(r"(a+)+$", "a" * length + "b")
        held = time.monotonic() - call
        length += 1
times, _ = monitor.get_data()
print(held, max(b - a for a, b in itertools.pairwise(times)), len(times))

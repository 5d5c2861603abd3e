"""Two idle children and an operation that takes ever more memory, until it is killed.

The file named first gets the pids, then a letter before each 4 MiB: its time is that of the last memory it asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys

from otel_memwatch import operation

IDLE = "import time; x = bytearray(b'x') * (10 << 20); time.sleep(600)"

others = [subprocess.Popen([sys.executable, "-S", "-c", IDLE]) for _ in range(2)]
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.write(file, b'{"pids": [%d, %d, %d]}' % (os.getpid(), *(one.pid for one in others)))
with operation("Grow"):
    kept = []
    while True:
        os.write(file, b"\n")
        kept.append(bytearray(b"x") * (4 << 20))

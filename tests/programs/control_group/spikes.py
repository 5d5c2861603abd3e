"""Allocate and release as many MiB as each line of standard input says, and acknowledge each line."""

import sys

for line in sys.stdin:
    if line.strip():
        memory = bytearray(int(line) << 20)
        del memory
    print("done", flush=True)

"""Holds and drops memory on command: lines of a word and a size in MiB on standard input, each answered."""

import sys

block = None
print("ready", flush=True)
for line in sys.stdin:
    word, size = line.split()
    if word == "hold":
        block = bytearray(int(size) << 20)
    if word == "blip":
        b = bytearray(int(size) << 20)
        del b
    if word == "drop":
        block = None
    print("done", flush=True)

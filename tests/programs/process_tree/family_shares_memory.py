"""Three children share the 64 MiB of their parent until standard input ends."""

import os
import sys

b = bytearray(64 << 20)
for _ in range(3):
    if not os.fork():
        sys.stdin.read()
        os._exit(0)
print(flush=True)
sys.stdin.read()
for _ in range(3):
    os.wait()

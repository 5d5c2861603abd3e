"""A child has 90 MiB beside the 60 MiB of its parent."""

import os

b = bytearray(60 << 20)
if not os.fork():
    c = bytearray(90 << 20)
    os._exit(0)
os.wait()

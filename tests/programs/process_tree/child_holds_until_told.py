"""A child holds 60 MiB until its parent closes a pipe; the parent uses CPU time before."""

import os
import time

r, w = os.pipe()
if not os.fork():
    b = bytearray(60 << 20)
    os.close(w)
    os.read(r, 1)
    os._exit(0)
while os.times().user + os.times().system < 0.3:
    pass
b = bytearray(20 << 20)
time.sleep(1.2)
os.close(w)
os.wait()

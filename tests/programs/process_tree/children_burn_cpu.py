"""Three children, one after the other, use 0.3 s of CPU time each."""

import os


def burn():
    n = 0
    while os.times().user + os.times().system < 0.3:
        n += 1


for _ in range(3):
    if not os.fork():
        burn()
        os._exit(0)
    os.wait()

"""Five arrays of 16 MiB, one after the other: the allocation of NNCF's document."""

import time

import numpy as np


def allocate_memory() -> list:
    a = []
    for _ in range(5):
        a.append(np.ones((1 << 21,)))
        time.sleep(0.2)
    return a


if __name__ == "__main__":
    print("done", len(allocate_memory()))

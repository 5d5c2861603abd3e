"""Maps memory that it never touches, prints its pid and where that is, and waits until something is written into its last byte."""

import ctypes
import mmap
import os
import sys
import time

size = int(sys.argv[1]) << 20
memory = mmap.mmap(-1, size)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open(sys.argv[2] + ".new", "w") as file:
    file.write(f"{os.getpid()} {address}")
os.rename(sys.argv[2] + ".new", sys.argv[2])
last = ctypes.c_char.from_address(address + size - 1)
while last.value == b"\0":
    time.sleep(0.01)
time.sleep(0.5)

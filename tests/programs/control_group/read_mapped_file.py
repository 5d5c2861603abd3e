"""Maps the file of the argument, reads all of it, and ends."""

import mmap
import sys

with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))

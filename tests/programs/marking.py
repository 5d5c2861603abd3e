"""What programs that mark operations have in common."""

from __future__ import annotations

import asyncio  # noqa: F401 (here and below: for the programs that begin with this text)
import mmap
import os  # noqa: F401
import sys  # noqa: F401
import threading  # noqa: F401
import time

from otel_memwatch import mark, operation  # noqa: F401

MIB = 1 << 20


def touch(mib):
    """So many MiB of memory of our own, every page written to."""
    memory = mmap.mmap(-1, int(mib * MIB), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, len(memory), 4096):
        memory[place] = 1
    return memory


def blip(mib, hold=0.0):
    memory = touch(mib)
    time.sleep(hold)
    memory.close()

"""Marks in several interpreters of one process at once; with the argument "inside", only inside two others."""

from __future__ import annotations

import os
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

from marking import blip

from otel_memwatch import operation

INSIDE = f"""
import sys
sys.path[:] = {sys.path!r}
from otel_memwatch import mark, operation
for number in range(200):
    with operation("Inside", number=number), operation("Below"):
        pass
mark("Last phase")
"""
OPTIONS = {"isolated": True} if sys.version_info[:2] == (3, 12) else {}


def run_one():
    made = interpreters.create(**OPTIONS)
    failed = interpreters.run_string(made, INSIDE)
    assert failed is None, failed
    interpreters.destroy(made)


if sys.argv[1:] == ["inside"]:
    run_one()
    run_one()
    sys.exit()

with operation("Outside"):
    blip(40)
    run_one()  # what it does must not hide the peak that this one has seen
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run_one()
        with operation("Between"):
            blip(20)
    threads = [threading.Thread(target=run_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with operation("Beside"):
            pass
    for thread in threads:
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == descriptors, os.listdir("/proc/self/fd")

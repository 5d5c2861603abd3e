"""Closes all descriptors and opens new files at once: `takes_our_descriptors.py LIMIT`, of open files."""

from __future__ import annotations

import os
import resource
import sys

from marking import blip, operation

limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
place = os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "mine")
names = [f"{place}{n}" for n in range(8)]
for name in names:
    open(name, "w").close()
flags = os.O_RDWR
for _ in range(50):
    with operation("before"):
        pass
    os.closerange(3, 16 if limit == 64 else min(limit, 1024))
    mine = [os.open(name, flags) for name in names]
    with operation("after"):
        pass
    with operation("last"):
        blip(3)
    assert all(os.fstat(descriptor).st_size == 0 for descriptor in mine)

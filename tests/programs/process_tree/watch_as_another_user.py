"""User 65534 watches a process of root that runs the program of the argument; prints values and notes."""

import json
import mmap
import os
import sys
import time

from otel_memwatch.monitor.sampling.sources import Context, open_sources, process_tree
from otel_memwatch.runtime import polling

# imported while this process may still read what is root's
assert process_tree
assert polling
assert mmap

pid = os.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-S", sys.argv[1]])

time.sleep(0.4)
os.setgid(65534)
os.setuid(65534)
records = []
context = Context(pid, 0.05, on_process=records.append)
(tree,), _ = open_sources(context, ["process_tree"])
tree.read(time.monotonic())
time.sleep(0.1)
values = tree.read(time.monotonic())
print(
    json.dumps(
        [
            [" ".join([c.metric, *(v for _, v in c.attributes)]), v]
            for c, v in zip(tree.columns, values, strict=True)
        ]
    )
)
print(json.dumps([r.note for r in records]))

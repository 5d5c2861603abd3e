"""Supervises a command that no shell places: `kept_witness.py KEEP`, where KEEP (0 or 1) says whether its witness is kept."""

from __future__ import annotations

import os
import sys

from otel_memwatch.monitor.run.supervise import end_like, launch

keep = sys.argv[1] == "1"
told = []


def forked(pids):
    told.extend(pids)
    raise OSError("nobody answers")


target = launch(["sh", "-c", "exit 6"], variables={}, forked=forked)
main, witness = told
assert main == target.pid
assert witness in target.helpers
target.keeps_witness = keep
end = target.wait(lambda dead: None)
assert os.path.exists(f"/proc/{witness}") == keep
target.end_witness()
assert not os.path.exists(f"/proc/{witness}")
end_like(end)

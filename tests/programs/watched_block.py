"""Has one block of itself recorded, and asks the run while it is recorded and afterwards."""

from __future__ import annotations

import json
import os
import time

from marking import MIB, operation, touch
from watching import fast, load_run, monitors, watch

with watch("run", **fast) as run:
    called = time.monotonic()
    with operation("big"):
        kept = touch(150)
        time.sleep(0.1)
    assert run.state == "running"
    assert run.seconds > 0
    (big,) = run.operations
    assert big.operation.name == "big"
assert run.state == "finished", run.state
assert os.environ.get("OTEL_MEMWATCH_RUN_DIR") is None
with operation("outside"):
    pass
assert [found.operation.name for found in run.operations] == ["big"]
samples = run.samples()
assert run.latest.started + samples.time[0] <= called
rss = samples.column("process.memory.usage")
assert rss[0] < 100 * MIB < max(rss)
assert run.peaks.process.bytes >= 150 * MIB
assert "big" in run.report("text")
assert json.loads(run.report("json"))["run"]["state"] == "finished"
assert run.plot("picture.png").stat().st_size > 1000
assert load_run("run").peaks == run.peaks
assert monitors() == []

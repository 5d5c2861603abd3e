"""Operations each of which writes, reads, waits, runs a child, computes or touches memory."""

from __future__ import annotations

import os
import subprocess
import time

from marking import MIB, touch

from otel_memwatch import operation

place = os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "data.bin")
with operation("write"):
    with open(place, "wb", buffering=0) as file:
        file.write(bytes(3 * MIB))
with operation("read"):
    with open(place, "rb", buffering=0) as file:
        file.read()
with operation("idle"):
    time.sleep(0.001)
with operation("child"):
    subprocess.run(["dd", f"if={place}", "of=/dev/null", "bs=1M"], stderr=subprocess.DEVNULL, check=True)
with operation("busy"):
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
with operation("fault"):
    kept = touch(8)

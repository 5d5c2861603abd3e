"""The SDK's parts that export to an endpoint."""

from __future__ import annotations

import subprocess
import sys

_FORK = """
import os, threading
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from otel_memwatch.monitor.telemetry.exporters import PeriodicReader
reader = PeriodicReader(ConsoleMetricExporter(), 1e9)
child = os.fork()
if child == 0:
    os._exit(len(threading.enumerate()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""


def test_a_forked_child_has_no_thread_that_exports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n", "")

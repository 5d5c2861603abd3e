"""Trials of `advise --trade` with real processes."""

from __future__ import annotations

import subprocess

import psutil

from otel_memwatch.wings.advice.trade import _stop


def test_a_run_that_is_given_up_leaves_no_process() -> None:
    """A compiler's driver ended at SIGTERM; its child went on to read its files again and again, for minutes."""
    command = ["sh", "-c", "sleep 600 > /dev/null & echo $!; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        _stop(process)
    gone, alive = psutil.wait_procs([child], timeout=60)
    assert (gone, alive) == ([child], [])

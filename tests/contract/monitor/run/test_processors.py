"""Errors of the kernel's counters if the monitor may use only some processors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.api.loaded_run import load_run
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.kernel import processors, rss_error
from otel_memwatch.truth.cgroup_windows import charge_error

WIDENED = "import os; os.sched_setaffinity(0, range(4096)); print(len(os.sched_getaffinity(0)))"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one processor")
def test_a_mask_of_one_processor_makes_no_error_smaller(tmp_path: Path) -> None:
    """The program can leave the mask, and the kernel frees its objects on any processor."""
    usable = os.sched_getaffinity(0)
    wrap = [sys.executable, "-m", "otel_memwatch", "wrap", "--no-report", "-o", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*wrap, sys.executable, "-c", WIDENED],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(usable)}),
    )
    assert done.stdout == f"{len(usable)}\n", done.stderr
    conditions = RunConditions.of(load_run(tmp_path / "run").info)
    assert conditions.rss_error == rss_error()
    assert conditions.charge_error == charge_error(processors())

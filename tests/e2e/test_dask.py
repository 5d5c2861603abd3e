"""Dask's own clusters with the plugin: each task is an operation, and the scheduler knows the memory of all by their names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.in_target.operations.process_state import PER_THREAD
from otel_memwatch.run import load
from tests.support import counters
from tests.support.wrapped import MIB, environment, wrap

PROGRAM = Path(__file__).parent.parent / "programs" / "engines" / "dask_tasks.py"
FIELDS = ("name", "tasks", "failed", "alone", "seconds", "low", "high", "highest_exact", "exact")


def told(out: str) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    found = json.loads(out.splitlines()[-1])
    return found["seen"], {name: dict(zip(FIELDS, row, strict=True)) for name, row in found["groups"].items()}


def test_tasks_of_a_worker_with_one_thread_are_exact(tmp_path: Path) -> None:
    # Nothing of ours is named in the program or in a command: Dask's own settings do it.
    preload = '["otel_memwatch.plugins.dask"]'
    done = wrap(
        [sys.executable, str(PROGRAM), "1", "preloaded"],
        out=tmp_path / "run",
        cwd=tmp_path,
        DASK_DISTRIBUTED__WORKER__PRELOAD=preload,
        DASK_DISTRIBUTED__SCHEDULER__PRELOAD=preload,
    )
    assert done.code == 0, done.err
    seen, groups = told(done.out)
    for name, size in seen.items():
        group = groups[name]
        certain = counters.of_process(group["high"]) == "exact"
        assert bool(group["exact"]) is certain or PER_THREAD, "each thread adds to the counters' error"
        # Between both lies only what the kernel's counters may be off, which grows with the processors.
        assert (group["low"] + group["high"]) / 2 == pytest.approx(size, rel=0.01)
    assert (groups["abs"]["tasks"], groups["abs"]["failed"]) == (100, 0)
    assert (groups["fails"]["tasks"], groups["fails"]["failed"]) == (1, 1)

    # The worker belongs to the run around the whole: its tasks are operations of that.
    assert not (tmp_path / "memwatch-runs").exists()
    operations = {figures.operation.name: figures for figures in load(done.directory).operations}
    assert set(seen) <= set(operations)
    assert operations["hold200"].operation.attributes["dask.key"] == "hold200-1"
    assert operations["fails"].operation.error == "KeyError"


def test_tasks_beside_each_other_have_bounds_that_hold(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "3"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, groups = told(done.stdout)
    highest = max(group["high"] for group in groups.values())
    for mib in (50, 100, 150):
        group = groups[f"beside{mib}"]
        assert group["alone"] == 0
        assert not group["exact"]
        assert group["high"] - group["low"] > 100 * MIB
        assert group["high"] == highest, "all three had their memory at the same time"
    # No monitor recorded the program, so the plugin has: one run, of the process that the worker lives in.
    (run,) = (tmp_path / "memwatch-runs").iterdir()
    info = json.loads((run / "run.json").read_text())
    assert info["state"] == "finished"
    assert info["tags"]["engine"] == "dask"
    assert {figures.operation.name for figures in load(run).operations} == set(groups)

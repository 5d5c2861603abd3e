"""A local Ray with the hook of its runtime environment: each task and each call of an actor is an operation."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations.process_state import PER_THREAD
from tests.support import counters
from tests.support.wrapped import MIB, wrap

PROGRAM = Path(__file__).parent.parent / "programs" / "engines" / "ray_tasks.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: sh tests/run.sh all"
)


def test_tasks_and_calls_of_actors_are_operations(tmp_path: Path) -> None:
    # What Ray itself puts under /tmp needs a short path for its sockets.
    done = wrap(
        [sys.executable, str(PROGRAM)],
        out=tmp_path / "run",
        cwd=tmp_path,
        timeout=220,
        HOME=str(tmp_path),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",
    )
    assert done.code == 0, done.err
    seen = json.loads(done.out.splitlines()[-1])
    assert "on purpose" in seen["error"]
    operations = {operation["name"]: operation for operation in done.report["operations"]}
    assert set(operations) == {
        "hold", "fails", "values", "Store.__init__", "Store.size", "Together.__init__", "Together.hold"
    }  # fmt: skip
    for name in ("hold", "Store.size"):
        peak = operations[name]["peak"]
        assert peak["certainty"] == counters.of_process(peak["bytes"]) or PER_THREAD
        assert (peak["low"] + peak["high"]) / 2 == pytest.approx(seen[name], rel=0.01)
    assert operations["fails"]["status"] == "error"
    assert operations["Store.size"]["attributes"]["ray.actor_id"]
    together = operations["Together.hold"]["attributes"]
    assert together["memwatch.tasks.beside"] == 1
    assert together["memwatch.tasks.alone"] < 200 * MIB

"""Runs that may be judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.run.stalls import Stalls
from otel_memwatch.wings.gate.judged_runs import fed


def run(memory: float | None = None, oom_kills: int = 0, verdict: str = "finished") -> Any:
    ending = SimpleNamespace(
        oom_kills=oom_kills, reason="exit code 0; the kernel's OOM killer killed a process of it"
    )
    return SimpleNamespace(
        path=Path("runs/a"), ending=ending, seconds=10.0, stalls=Stalls(memory=memory), verdict=verdict
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (run(), None),
        (run(0.04), None),
        (run(0.8), "short of memory 80 % of the time"),
        (run(verdict="timeout"), "ended by otel-memwatch (timeout)"),
        (run(oom_kills=1), "out of memory (exit code 0; the kernel's OOM killer killed a process of it)"),
    ],
)
def test_a_run_that_got_less_than_it_needed_is_not_compared(given: Any, why: str | None) -> None:
    """A run that was killed or starved was called 47 % better."""
    kept, left_out = fed([given])
    assert [one.why for one in left_out] == ([] if why is None else [why])
    assert len(kept) == (why is None)

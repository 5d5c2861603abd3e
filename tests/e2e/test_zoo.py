"""What a run claims of programs of every kind of memory use, against a referee that sees all of it; see tests/zoo.

MEMWATCH_LONG=1 tries a thousand new compositions, watched in every way by everybody.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.torture import LONG
from tests.zoo.__main__ import trials
from tests.zoo.compositions import KINDS, drawn
from tests.zoo.trial import MODES, USERS, run

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.max_usage_in_bytes").exists(),
    reason="the referee is a control group of version 1 that root makes inside its own",
)
TOGETHER = 7
NAMES = sorted(KINDS)


@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER))
def test_every_kind(first: int) -> None:
    """Each once, some together, in a control group of the run's own."""
    dice = random.Random(first)
    trial = run(drawn(dice, NAMES[first : first + TOGETHER]), "group", "root", "0.02")
    assert not trial.problems, trial.how


@pytest.mark.skipif(not LONG, reason="half an hour: MEMWATCH_LONG=1")
def test_many_compositions() -> None:
    """Others at each run; the seed is told."""
    seed = random.randrange(1 << 30)
    for trial in trials(1000, seed, NAMES, list(MODES), list(USERS), jobs=2):
        assert not trial.problems, f"seed {seed}: {trial.how}"

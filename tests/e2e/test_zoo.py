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
from tests.zoo.compositions import KINDS, Leaf, drawn
from tests.zoo.trial import MODES, USERS, run, zoo

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


def test_what_is_read_again_from_a_disk_is_no_memory_needed() -> None:
    """Pages of a file that the kernel has dropped are charged to whoever reads them next: to the referee."""
    with (zoo() / "old").open("rb+") as old:
        os.fsync(old.fileno())
        os.posix_fadvise(old.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    trial = run(Leaf("file_read", 24, 0), "off", "user", "0.1")
    assert not trial.problems, trial.problems
    assert trial.truth.least < 2 << 20


@pytest.mark.skipif(not LONG, reason="half an hour: MEMWATCH_LONG=1")
def test_many_compositions() -> None:
    """Others at each run; the seed is told."""
    seed = random.randrange(1 << 30)
    tried = 0
    for trial in trials(1000, seed, NAMES, list(MODES), list(USERS), jobs=2):
        assert not trial.problems, f"seed {seed}: {trial.how}"
        tried += 1
    assert tried == 1000

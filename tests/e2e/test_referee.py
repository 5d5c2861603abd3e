"""The referee of real programs; see tests/referee."""

from __future__ import annotations

import pytest

from tests.referee.trial import MIB, Truth, problem
from tests.support.counters import tree_error

EXCLUDES = ["kernel", "files in memory"]


@pytest.mark.parametrize(
    ("high", "excludes", "gap", "claim"),
    [
        (65, ["kernel"], 0.1, ""),
        (30, ["kernel"], 0.1, "false upper bound"),
        (30, EXCLUDES, 0.1, ""),  # of 60 MiB, 40 were a brief file in memory
        (20, EXCLUDES, 0.1, "false upper bound"),  # files lasted from sample to sample
        (20, EXCLUDES, 1.0, ""),  # no sample need have seen them
        (10, EXCLUDES, 1.0, "false upper bound"),  # anonymous memory
    ],
)
def test_an_upper_bound_is_judged_by_the_memory_that_it_states(
    high: int, excludes: list[str], gap: float, claim: str
) -> None:
    truth = Truth(60 * MIB, 60 * MIB, 60 * MIB, 0, 1000, anonymous=15 * MIB, lasting=28 * MIB)
    peak = {"low": 0, "high": high * MIB, "certainty": "interval", "excludes": excludes}
    assert problem(peak, truth, 0, "user", gap) == claim


def test_caches_at_one_moment_hide_no_memory_at_another() -> None:
    """`git clone` had 2.5 MiB mapped, and at its end 10 MiB of inodes."""
    truth = Truth(11 * MIB, 12 * MIB, 5 * MIB // 2, 10 * MIB, 1000, reclaimable=10 * MIB)
    assert (truth.needed_least, truth.needed_most) == (5 * MIB // 2, 5 * MIB // 2)


@pytest.mark.parametrize(("processors", "error"), [(2, 0.5), (64, 16)])
def test_many_processors_hide_no_false_claim_about_a_tree(processors: int, error: float) -> None:
    """The peak of one process is off by up to 95 MiB on 64 processors; the referee is a cgroup."""
    assert tree_error(95 * MIB, processors) == error * MIB
    assert tree_error(MIB // 4, processors) == MIB // 4

"""Memory that page faults can have brought."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.faults import (
    certainly_there,
    certainly_there_of_shares,
    family_there,
    gained,
    left_of_huge_pages,
    own_pages,
    tree_kept,
)
from tests.support.run_directory import MIB


def test_the_fault_ledger_bounds_a_tree_by_what_it_gained_or_by_what_it_holds() -> None:
    new = gained(2560, 2 << 20, page=4096)
    assert new == 12 * MIB
    # four workers hold 100 MiB each, which are one and the same but for what they gained
    assert tree_kept(100 * MIB, new, 400 * MIB) == 112 * MIB
    # one process has given 60 MiB back
    assert tree_kept(100 * MIB, new, 40 * MIB) == 40 * MIB
    # a child may have been born that no sample has read: it may have what was given back
    assert tree_kept(100 * MIB, new, None) == 112 * MIB


@pytest.mark.parametrize(
    ("freed_since", "partly_free", "left"), [(0, 50, 0), (112, 112, 224), (112, 150, 224), (150, 112, 224), (112, None, 224)]
)  # fmt: skip
def test_what_is_left_of_partly_freed_huge_pages(
    freed_since: int, partly_free: int | None, left: int
) -> None:
    assert left_of_huge_pages(freed_since, partly_free) == left * MIB
    assert tree_kept(100 * MIB, 200 * MIB, 202 * MIB, left * MIB) == min(300, 202 + left) * MIB


def test_what_was_there_at_once_is_what_was_not_gained_meanwhile() -> None:
    assert certainly_there(300 * MIB, MIB) == 299 * MIB
    assert certainly_there(MIB, 2 * MIB) == 0
    assert certainly_there_of_shares(300 * MIB, 2 * MIB, MIB) == 297 * MIB


@pytest.mark.parametrize(
    ("held", "least", "own"),
    [
        # read first with what it had of its parent
        (84, 60, 24),
        # read first with all that it has: it is unknown whose that is
        (84, 84, 0),
        # it has given back since what an earlier look saw
        (40, 60, 0),
        # less than the counters may be off
        (61, 60, 0),
    ],
)
def test_what_a_forked_process_has_beyond_its_least_is_private(held: int, least: int, own: int) -> None:
    assert own_pages(held, least, 1) == max(0, own - 1)


def test_own_pages_of_forked_processes_were_there_beside_one_of_them() -> None:
    own = [own_pages(71 * MIB, 47 * MIB, 0) for _ in range(3)]
    assert family_there(71 * MIB, sum(own)) == 143 * MIB

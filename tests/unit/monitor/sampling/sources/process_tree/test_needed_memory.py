"""When a tick is worth its cost before it is due, by what a glance finds."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import NeededNow
from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
from otel_memwatch.monitor.sampling.sources.process_tree.needed_memory import (
    PATIENCE,
    WITHIN,
    EarlySamplePolicy,
    PrivateMemoryChange,
    moved_since,
)
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors
from tests.support.proc_tree import ProcTree

MIB = 1 << 20


def scanned(low: int, high: int | None, kept: int, interval: float = 0.1) -> EarlySamplePolicy:
    """After one scan, in MiB: what was there, what was not exceeded, and what there is at most at its end."""
    between = EarlySamplePolicy(interval)
    between.scanned(NeededNow(low * MIB, None if high is None else high * MIB, low * MIB), 0, kept * MIB)
    return between


@pytest.mark.parametrize(
    ("gained", "given_back", "worth_it"),
    [
        # given back, and as much may come again: more than ever
        (0, 60, True),
        (40, 60, True),
        # one that only grows: the next tick sees all of it
        (15, 0, False),
        # more than ever was seen, by much: it may be gone before the next tick
        (60, 0, True),
        # little against what it has
        (2, 2, False),
        # nothing
        (0, 0, False),
    ],
)
def test_a_tick_is_worth_it_where_much_was_given_back_or_gained(
    gained: int, given_back: int, worth_it: bool
) -> None:
    assert scanned(200, 210, 200).is_worth_it(PrivateMemoryChange(gained * MIB, given_back * MIB)) is worth_it


@pytest.mark.parametrize(
    ("interval", "high", "gained", "worth_it"),
    [
        (10.0, 90, 0.5, True),
        (10.0, 90, 3, True),
        (10.0, 300, 3, False),
        (0.1, 90, 3, False),
        (None, 90, 3, False),
    ],
)
def test_huge_pages_of_others_call_for_a_sample_in_a_long_interval_if_they_widen_the_range(
    interval: float | None, high: int, gained: float, worth_it: bool
) -> None:
    policy = scanned(80, high, 80)
    policy._auto = None if interval is None else cast("Any", SimpleNamespace(now=interval, probe_after=1.0))
    assert policy.is_worth_it(PrivateMemoryChange(int(gained * MIB), 0, huge=40 * MIB)) is worth_it


def test_probes_are_as_rare_as_the_samples_of_a_long_interval() -> None:
    policy = scanned(80, 90, 80)
    assert policy.probe_after == WITHIN
    policy._auto = cast("Any", SimpleNamespace(now=10.0))
    assert policy.probe_after == 1.0


def test_a_tick_is_not_worth_it_far_below_the_largest_bound() -> None:
    between = scanned(500, 500, 500)
    between.scanned(NeededNow(100 * MIB, 500 * MIB, 100 * MIB), 0, 100 * MIB)
    assert not between.is_worth_it(PrivateMemoryChange(50 * MIB, 50 * MIB))


def test_glances_grow_rare_where_nothing_happens_and_come_back() -> None:
    between = scanned(200, 204, 200)
    for _ in range(4 * PATIENCE):
        between.is_worth_it(PrivateMemoryChange(0, 0))
    assert between.within == 0.1
    between.scanned(NeededNow(200 * MIB, 204 * MIB, 200 * MIB), 0, 200 * MIB)
    assert between.within == 0.1
    # 90 MiB came and went between two ticks
    between.scanned(NeededNow(200 * MIB, 290 * MIB, 200 * MIB), 0, 200 * MIB)
    assert between.within == WITHIN


@pytest.mark.parametrize(("high", "interval"), [(None, 0.1), (210, 1.0)])
def test_no_glance_where_nothing_is_known_or_few_ticks_were_asked_for(
    high: int | None, interval: float
) -> None:
    assert scanned(200, high, 200, interval).within == math.inf


def test_what_members_gained_and_gave_back(tmp_path: Path) -> None:
    """One has 30 MiB less, and 10 came besides; one has ended with 20, of 5 that its parent inherited page faults for."""
    proc = ProcTree(tmp_path / "proc")
    page, each = os.sysconf("SC_PAGE_SIZE"), MIB // os.sysconf("SC_PAGE_SIZE")
    few = Descriptors(0)
    proc.process(50, 1, rss=100 * MIB, minor=10)
    proc.process(51, 50, rss=20 * MIB, minor=10)
    members = {pid: Member(str(proc.path), pid, few) for pid in (50, 51)}
    held = {50: (10, 100 * MIB), 51: (10, 20 * MIB)}
    assert moved_since(members, held.__getitem__) is None
    proc.remove(51, 50)
    proc.process(50, 1, rss=70 * MIB, minor=10 + 10 * each, child_minor=10 + 5 * each)
    assert moved_since(members, held.__getitem__) == PrivateMemoryChange(
        15 * each * page, (40 + 20 + 5) * MIB
    )


def test_a_huge_page_that_one_fault_has_brought_is_gained_as_a_whole(tmp_path: Path) -> None:
    proc = ProcTree(tmp_path / "proc")
    proc.process(50, 1, rss=100 * MIB, minor=10)
    members = {50: Member(str(proc.path), 50, Descriptors(0))}
    proc.process(50, 1, rss=140 * MIB, minor=10 + 20)
    assert moved_since(members, {50: (10, 100 * MIB)}.__getitem__) == PrivateMemoryChange(40 * MIB, 0)

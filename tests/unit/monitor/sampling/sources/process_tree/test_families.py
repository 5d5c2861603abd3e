"""Lower bound and best estimate of private memory, family by family."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.monitor.sampling.sources.process_tree.families import Families
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import AddressSpace, MemberReading
from otel_memwatch.runtime.procfs import address_spaces

MIB = 1 << 20


def reading(pid: int, family: int, held: int | None, faults: int, least: int = 0) -> MemberReading:
    """Readings of a process with so many MiB, and so many MiB of page faults."""
    space = AddressSpace(family, 0, pid)
    space.least, space.most = least * MIB, (held or 0) * MIB
    member: Any = SimpleNamespace(pid=pid, shmem=0, file=5 * MIB, watermark=SimpleNamespace(last=None))
    faulted = faults * MIB // 4096
    return MemberReading(member, space, False, None if held is None else held * MIB, faulted, faulted, False)


def added(*readings: MemberReading, scans: int = 1) -> Families:
    """Families of these processes after some scans."""
    families = Families()
    for _ in range(scans):
        families.begin()
        for one in readings:
            if one.held is None:
                families.add_unknown(one)
            else:
                families.add(one, one.held, one.held, 0)
        families.low(trusted=True)
    return families


def test_families_add_up_and_members_of_one_may_share_all_their_pages() -> None:
    families = added(reading(1, 8, 50, 50), reading(2, 8, 40, 0), reading(3, 16, 30, 30))
    assert families.low(trusted=False) == 80 * MIB


@pytest.mark.parametrize(("trusted", "low"), [(True, 60), (False, 50)])
def test_memory_beyond_the_minimum_is_unshared_unless_the_machine_swaps(
    monkeypatch: pytest.MonkeyPatch, trusted: bool, low: int
) -> None:
    monkeypatch.setattr(address_spaces, "compare", lambda _pid, _other: 1)
    families = added(reading(1, 8, 50, 50), reading(2, 8, 40, 10, least=30), scans=2)
    assert families.low(trusted=trusted) == low * MIB


def test_the_estimate_of_a_process_that_no_sample_can_read_is_its_page_faults() -> None:
    assert added(reading(1, 8, None, 20)).estimate() == 20 * MIB
    assert added(reading(1, 8, None, 20), reading(2, 16, 30, 99)).estimate() == 50 * MIB


def test_a_forked_process_adds_the_pages_that_its_faults_brought() -> None:
    assert added(reading(1, 8, 50, 50, least=48), reading(2, 8, 50, 5, least=48)).estimate() == 55 * MIB


@pytest.mark.parametrize(
    ("scan", "estimate"),
    [
        # The parent freed memory before the fork: its worker's page faults copy inherited pages.
        (0, 50 + 50),
        # It frees beside the worker: the faults may be memory that is freed again. The worker had copied 20 MiB before.
        (1, 50 + 5 + 20),
    ],
)
def test_copies_count_until_the_family_frees_memory(scan: int, estimate: int) -> None:
    parent, worker = reading(1, 8, 50, 50, least=2), reading(2, 8, 50, 25, least=45)
    families = Families()
    for count in range(2):
        families.begin()
        if count == scan:
            parent.space.most = 90 * MIB
        for one in (parent, worker):
            families.add(one, one.held or 0, one.held or 0, 0)
        worker = worker._replace(last=50 * MIB // 4096)
    assert families.estimate() == estimate * MIB


@pytest.mark.parametrize(("mark", "estimate"), [(75, 50 + 5), (58, 50 + 40)])
def test_a_high_water_mark_shows_that_a_worker_freed_memory(mark: int, estimate: int) -> None:
    """It sends answers of 20 MiB, one after the other: its page faults are no copies of the parent's pages."""
    parent, worker = reading(1, 8, 50, 50), reading(2, 8, 50, 0, least=45)
    families = Families()
    for faults, highest in ((0, 50), (40, mark)):
        families.begin()
        worker.member.watermark.last = highest * MIB  # type: ignore[misc]
        for one in (parent, worker._replace(last=faults * MIB // 4096)):
            families.add(one, one.held or 0, one.held or 0, 0)
        worker.space.mark = highest * MIB
    assert families.estimate() == estimate * MIB


@pytest.mark.parametrize(("faults", "kept"), [(0, 0), (40, 40), (200, 48)])
def test_a_child_keeps_the_pages_that_its_parent_rewrites(faults: int, kept: int) -> None:
    families = Families()
    for more in (0, faults):
        families.begin()
        parent, child = reading(1, 8, 50, 50 + more), reading(2, 8, 48, 0, least=48)
        for one in (parent, child):
            families.add(one, one.held or 0, one.held or 0, 0)
    assert families.estimate() == (50 + kept) * MIB

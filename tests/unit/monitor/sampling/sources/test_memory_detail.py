"""Proportional set size: right, and within its budget."""

from __future__ import annotations

import builtins
import math
import os
import time
from pathlib import Path

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.memory_detail import (
    ADVANCE,
    FIRST_AFTER,
    OLD,
    OLD_SHARE,
    REPEATED,
    SHARE,
    WIDE_SHARE,
    MemoryDetail,
)
from tests.support.proc_tree import KnownPids

MIB = 1 << 20
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="the kernel does not sum up mappings"
)


def fake(tmp_path: Path, pids: int, rss: int) -> Context:
    for pid in ("self", *map(str, range(1, pids + 1))):
        folder = tmp_path / pid
        folder.mkdir()
        (folder / "smaps_rollup").write_text(
            f"{pid}-f000 [rollup]\nPss: 1000 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwap: 3 kB\n"
        )
        (folder / "statm").write_text(f"0 {rss // os.sysconf('SC_PAGE_SIZE')} 0\n")
    return Context(1, 0.1, proc=tmp_path, tree=KnownPids(range(1, pids + 1)))


def readings(detail: MemoryDetail, seconds: float) -> list[float]:
    """Seconds after the first tick at which there was a value; the clock is made up, reading is not."""
    ticks = range(int(seconds * 10))
    return [tick / 10 for tick in ticks if detail.read(100.0 + tick / 10)[0] is not None]


def test_small_tree_is_read_soon_and_summed(tmp_path: Path) -> None:
    detail = MemoryDetail(fake(tmp_path, 3, MIB))
    assert readings(detail, FIRST_AFTER) == []
    # this kernel does not tell which shares are of files
    assert detail.read(100.0 + FIRST_AFTER) == (3000 << 10, 9 << 10, 9 << 10, None, None)


def test_sums_of_a_tree_that_does_not_run_are_repeated(tmp_path: Path) -> None:
    context = fake(tmp_path, 1, MIB)
    tree, rollup = context.tree, tmp_path / "1" / "smaps_rollup"
    assert isinstance(tree, KnownPids)
    tree.runs = 7
    detail = MemoryDetail(context)
    readings(detail, FIRST_AFTER)
    first = detail.read(100.0 + FIRST_AFTER)
    rollup.write_text(rollup.read_text().replace("1000", "2000"))

    assert detail.read(102.0) == first
    assert detail.read(102.5)[0] is None, "no more often than they are read"
    tree.runs = 8
    assert detail.read(104.0)[0] == 2000 << 10
    rollup.write_text(rollup.read_text().replace("2000", "3000"))
    assert detail.read(106.0)[0] == 2000 << 10
    assert detail.read(104.0 + REPEATED)[0] == 3000 << 10, "other programs may share less"


@pytest.mark.parametrize("group", [None, "/sys/fs/cgroup/job"])
def test_sums_of_a_tree_that_sleeps_are_repeated_less_often_but_read_in_time(
    tmp_path: Path, group: str | None
) -> None:
    context = fake(tmp_path, 1, MIB)._replace(target_group=group)
    assert isinstance(context.tree, KnownPids)
    context.tree.runs = 7
    detail = MemoryDetail(context)
    readings(detail, 1.0)
    detail.read(101.0)
    for now in (101.1, 101.2):
        assert detail.read(now)[0] is None
    assert detail.repeats().until == pytest.approx(101.95)
    context.tree.sleeps = True
    assert detail.repeats().until == pytest.approx(102.95)
    for now, until in ((108.0, 109.95), (109.0, 110.95), (110.0, 110.95)):
        assert detail.read(now)[0] is not None
        assert detail.read(now + 0.1)[0] is None
        assert detail.repeats().until == pytest.approx(until), "other programs may share less"


def test_shares_without_files_are_reported_less_what_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = fake(tmp_path, 2, MIB)
    for pid in "12":
        rollup = tmp_path / pid / "smaps_rollup"
        rollup.write_text(rollup.read_text() + "Pss_Anon: 600 kB\nPss_Shmem: 100 kB\n")
    detail = MemoryDetail(context)
    looks = iter([{1: (MIB, 0), 2: (MIB, 50)}, {1: (MIB, 2), 2: (MIB - 8192, 50)}])
    monkeypatch.setattr(detail, "_held", lambda pids: next(looks))
    assert readings(detail, FIRST_AFTER) == []
    # two faults of 4 KiB, which left the first no larger, and 8 KiB that the second gave back
    page = os.sysconf("SC_PAGE_SIZE")
    assert detail.read(100.0 + FIRST_AFTER)[3] == (1400 << 10) - 2 * page - 2 * page - 8192


def test_reading_takes_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**9))
    # every look at the clock is 2 ms after the one before: a round takes 2 ms
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * 0.002)
    times = readings(MemoryDetail(fake(tmp_path, 1, 8 * MIB)), 100.0)
    assert len(times) * 0.002 <= 100.0 * SHARE + ADVANCE
    assert len(times) > 30


def test_a_watch_of_hours_is_read_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor of a service may take 0.05 % of a core after the first hour, even if a range stays wide."""
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * 0.002)
    context = fake(tmp_path, 1, 8 * MIB)
    detail = MemoryDetail(context._replace(tree=KnownPids([1], (100 * MIB, 121 * MIB))))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    found = [at for at in range(0, 5 * 3600, 10) if detail.read(100.0 + at)[0] is not None]
    young, old = (sum(at < OLD for at in found), sum(at >= OLD for at in found))
    assert young >= 100
    assert old * 0.002 <= 4 * 3600 * OLD_SHARE + 2 * ADVANCE


@pytest.mark.parametrize(
    ("bounds", "share"),
    [
        ((100 * MIB, 119 * MIB), SHARE),
        ((100 * MIB, 121 * MIB), WIDE_SHARE),
        # The sums of shares have raised the lower bound to 1 MiB already.
        ((100, 1100 << 10), SHARE),
    ],
)
def test_more_is_read_while_it_can_narrow_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int], share: float
) -> None:
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * 0.004)
    context = fake(tmp_path, 1, 8 * MIB)
    rollup = tmp_path / "1" / "smaps_rollup"
    rollup.write_text(rollup.read_text() + "Pss_Anon: 1000 kB\nPss_Shmem: 24 kB\n")
    detail = MemoryDetail(context._replace(tree=KnownPids([1], bounds)))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    spent = len(readings(detail, 100.0)) * 0.004
    assert spent <= 100.0 * share + ADVANCE
    assert spent > 50.0 * min(share, 0.004)  # at most once a second


def test_shares_are_read_again_if_the_estimate_alone_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers free memory and allocate as much: their page faults rise, and no bound does."""
    context = fake(tmp_path, 1, 8 * MIB)
    tree = KnownPids([1], (100 * MIB, 300 * MIB))
    detail = MemoryDetail(context._replace(tree=tree))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    found, rests_until = [], -math.inf
    for tick in range(15):
        guess = (130 if tick < 8 else 150) * MIB
        monkeypatch.setattr(tree, "needed_estimate", lambda guess=guess: (guess, 0, 0))
        if detail.read(100.0 + tick / 10)[0] is not None:
            found.append(tick / 10)
            assert rests_until <= 100.0 + tick / 10 + 1e-6, "it was not to be repeated until then"
        rests_until = detail.repeats().until
    assert found == [0.2, 0.9]
    assert rests_until == pytest.approx(101.95), "with the other sources that are read once a second"


@pytest.mark.parametrize(("resident", "factor"), [(None, 0.7), (0, 0.7), (5, None)])
def test_the_estimate_is_not_corrected_if_a_new_child_shares_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident: int | None, factor: float | None
) -> None:
    context = fake(tmp_path, 1, 8 * MIB)
    rollup = tmp_path / "1" / "smaps_rollup"
    rollup.write_text(rollup.read_text() + "Pss_Anon: 700 kB\nPss_Shmem: 0 kB\n")
    tree = KnownPids([1])
    monkeypatch.setattr(tree, "needed_estimate", lambda: (1000 << 10, 0, 0))
    if resident is not None:
        (tmp_path / "1/task/1").mkdir(parents=True)
        (tmp_path / "1/task/1/children").write_text("1 9 ")
        (tmp_path / "9").mkdir()
        (tmp_path / "9/statm").write_text(f"0 {resident} 0\n")
    detail = MemoryDetail(context._replace(tree=tree))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    assert readings(detail, FIRST_AFTER) == []
    assert detail.read(100.0 + FIRST_AFTER)[-1] == factor


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ({2: (100 << 10, 0)}, {}, 0.8),
        ({2: (100 << 10, 0)}, {2: (0, 0)}, 0.8),  # a zombie
        # It ended between the estimate and the reading: how much it had is unknown.
        ({2: (0, 0)}, {2: (0, 0)}, None),
        ({}, {}, None),
    ],
)
def test_a_process_that_ends_during_the_reading_counts_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[int, tuple[int, int]],
    after: dict[int, tuple[int, int]],
    factor: float | None,
) -> None:
    """An estimate beyond all that it can have been is corrected."""
    context = fake(tmp_path, 1, 8 * MIB)
    rollup = tmp_path / "1" / "smaps_rollup"
    rollup.write_text(rollup.read_text() + "Pss_Anon: 700 kB\nPss_Shmem: 0 kB\n")
    tree = KnownPids([1, 2])
    monkeypatch.setattr(tree, "needed_estimate", lambda: (1000 << 10, 0, 0))
    detail = MemoryDetail(context._replace(tree=tree))
    held = iter([{1: (MIB, 0), **before}, {1: (MIB, 0), **after}])
    monkeypatch.setattr(detail, "_held", lambda pids: next(held))
    assert readings(detail, FIRST_AFTER) == []
    assert detail.read(100.0 + FIRST_AFTER)[-1] == factor


def test_large_tree_waits_until_it_can_be_afforded(tmp_path: Path) -> None:
    # 8 GiB take 88 ms: a thousandth of 88 s
    detail = MemoryDetail(fake(tmp_path, 1, 8 << 30))
    for tick in range(800):
        assert detail.read(100.0 + tick / 10)[0] is None
        assert detail._thread is None
    found = []
    for tick in range(800, 1000):
        found.append(detail.read(100.0 + tick / 10)[0])
        detail.close()
    known = [place for place, value in enumerate(found) if value is not None]
    assert 80 <= known[0] <= 100


def test_sum_of_a_changing_tree_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detail = MemoryDetail(fake(tmp_path, 1, MIB))
    sizes = iter([100 * MIB, 150 * MIB] * 1000)
    monkeypatch.setattr(detail, "_sizes", lambda pids: {1: next(sizes)})
    assert readings(detail, 20.0) == []


def test_an_estimate_that_varies_delays_no_reading_of_a_grown_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = fake(tmp_path, 1, 8 * MIB)
    tree = KnownPids([1], (100 * MIB, 300 * MIB))
    detail = MemoryDetail(context._replace(tree=tree))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    found = []
    for tick in range(4):
        monkeypatch.setattr(tree, "needed_estimate", lambda tick=tick: ((110 + 10 * tick) * MIB, 0, 0))
        if detail.read(100.0 + tick / 10)[0] is not None:
            found.append(tick / 10)
    assert found == [0.2]


def test_a_discarded_reading_is_repeated_once_the_tree_is_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = fake(tmp_path, 1, MIB)
    detail = MemoryDetail(context._replace(tree=KnownPids([1], (100 * MIB, 300 * MIB))))
    monkeypatch.setattr(detail, "_held", lambda pids: {1: (MIB, 0)})
    sizes = iter([100 * MIB, 150 * MIB])
    monkeypatch.setattr(detail, "_sizes", lambda pids: {1: next(sizes, MIB)})
    assert readings(detail, 1.0) == [0.3], "that of 0.2 s was discarded"


def test_denied_process_makes_the_sum_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detail = MemoryDetail(fake(tmp_path, 2, MIB))
    real = open

    def denying(path: str, mode: str) -> object:
        if path.endswith("2/smaps_rollup"):
            raise PermissionError(path)
        return real(path, mode)

    # root is denied nothing, so the refusal is made up
    monkeypatch.setattr(builtins, "open", denying)
    assert readings(detail, 5.0) == []


def test_processes_that_vanish_are_left_out(tmp_path: Path) -> None:
    context = fake(tmp_path, 2, MIB)
    (tmp_path / "2/smaps_rollup").unlink()
    detail = MemoryDetail(context)
    detail.read(100.0)
    assert detail.read(101.0)[0] == 1000 << 10


def test_kernel_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="smaps_rollup"):
        MemoryDetail(Context(1, 0.1, proc=tmp_path))

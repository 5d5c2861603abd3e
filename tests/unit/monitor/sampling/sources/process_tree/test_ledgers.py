"""The two ledgers that bound the processes that no sample saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.monitor.sampling.sources.process_tree import ledgers
from otel_memwatch.monitor.sampling.sources.process_tree.discovery import ForkCounter
from otel_memwatch.monitor.sampling.sources.process_tree.ledgers import FaultLedger, PidLedger
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors
from otel_memwatch.runtime.procfs.process import Stat
from tests.support.proc_tree import ProcTree


class Pids:
    """A ledger of pids whose kernel gives as many as a test says."""

    def __init__(self, path: Path) -> None:
        self._proc = ProcTree(path)
        forks = ForkCounter(str(self._proc.path), Descriptors())
        self._last = forks.last
        self.ledger = PidLedger(forks, forks.last)

    def _give(self, pids: int) -> None:
        self._last += pids
        self._proc.last_pid(self._last)

    def tick(self, *, given: int, late: int = 0, explained: int = 0, suspicious: bool) -> None:
        """`given`: pids given since the tick before; `late`: those of them given during this tick."""
        self._give(given - late)
        self.ledger.open()
        self.ledger.threads_began(explained)
        self._give(late)
        if not self.ledger.close_if_none_given(signs=suspicious or late > 0):
            self.ledger.close(suspicious=suspicious)


@pytest.fixture
def pids(tmp_path: Path) -> Pids:
    return Pids(tmp_path / "proc")


def test_nothing_is_claimed_without_a_sign(pids: Pids) -> None:
    pids.tick(given=100, suspicious=False)
    pids.tick(given=0, suspicious=False)
    pids.tick(given=0, suspicious=True)
    assert pids.ledger.unobserved == 0


def test_a_sign_claims_this_tick_and_the_one_before_once(pids: Pids) -> None:
    pids.tick(given=7, explained=2, suspicious=False)
    pids.tick(given=3, explained=1, suspicious=True)
    assert pids.ledger.unobserved == 7
    pids.tick(given=0, suspicious=True)
    assert pids.ledger.unobserved == 7


def test_more_explained_than_given_claims_nothing_back(pids: Pids) -> None:
    pids.tick(given=1, explained=5, suspicious=True)
    pids.tick(given=4, suspicious=True)
    assert pids.ledger.unobserved == 4


def test_what_was_given_during_a_tick_does_not_explain_the_next(pids: Pids) -> None:
    pids.tick(given=2, late=2, explained=2, suspicious=True)
    pids.tick(given=3, explained=2, suspicious=True)
    assert pids.ledger.unobserved == 3


def test_pids_of_other_programs_count_as_given(pids: Pids) -> None:
    pids.tick(given=5, late=2, explained=1, suspicious=True)
    pids.tick(given=0, suspicious=False)
    pids._give(3)
    assert pids.ledger.given_to_ended(most=8) == 8


def test_threads_that_live_are_not_among_those_that_have_ended(
    pids: Pids, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pids._last
    pids._proc.process(first, 1)  # the target, which is older than all that count
    pids.tick(given=5, late=2, suspicious=True)
    pids._proc.process(first + 2, 1)
    pids._proc.process(first + 5, 1, state="Z", flags=4)
    pids._proc.process(first + 9, 1)  # assigned later, or long ago
    pids._give(3)
    assert pids.ledger.given_to_ended(most=8) == 7
    assert pids.ledger.given_to_ended(most=7) == 8, "too many to check"
    pids._proc.process(first + 8, 1, flags=4)
    assert pids.ledger.given_to_ended(most=8) == 7, "it has begun to exit"
    # Of the monitor's threads, one lives, one has ended, and two are older or younger.
    monkeypatch.setattr(ledgers, "recent_pids", [first + number for number in (2, 3, 0, 9)])
    assert pids.ledger.given_to_ended(most=8) == 6


def test_what_is_given_during_a_tick_without_signs_is_left_to_the_next(pids: Pids) -> None:
    ledger = pids.ledger
    ledger.open()
    pids._give(5)
    assert ledger.close_if_none_given(signs=False)
    pids.tick(given=0, suspicious=True)
    assert ledger.unobserved == 5


def test_processes_seen_and_strangers_explain_their_pids_if_these_are_new(pids: Pids) -> None:
    ledger, before = pids.ledger, pids._last
    pids._give(10)
    ledger.open()
    ledger.joined(before + 1, threads=3)
    ledger.joined(before - 5)  # older than the tick before: it has used none of the ten
    ledger.are_strangers([before + 7, before + 8])
    assert ledger.unexplained()
    assert not ledger.close_if_none_given(signs=True)
    ledger.close(suspicious=True)
    assert (ledger.unobserved, ledger.seen) == (5, 2)


# -- page faults


def stat(minor: int = 0, major: int = 0, *, own: int = 10) -> Stat:
    """A process that has inherited these faults."""
    return Stat(1, "x", "S", 1, own, minor, 0, major, 0.0, 0.0, 0.0, 0.0, 1, 0, 0, 0)


@pytest.fixture
def inherited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the monitor's own process has inherited; the test may change it."""
    faults = [100]
    monkeypatch.setattr(ledgers, "_own_inherited_faults", lambda: faults[0])
    return faults


@pytest.fixture
def faults(inherited: list[int]) -> FaultLedger:
    assert inherited
    return FaultLedger()


def closed(faults: FaultLedger, *, ignores_sigchld: bool = False) -> tuple[bool, int | None]:
    faults.close(ignores_sigchld=ignores_sigchld)
    return faults.suspicious, faults.unseen


def test_a_quiet_tick_has_no_sign(faults: FaultLedger) -> None:
    faults.compare_with_own()
    assert not faults.signs
    assert closed(faults) == (False, 0)


def test_a_member_that_inherits_from_a_known_child_is_no_sign(faults: FaultLedger) -> None:
    faults.left_to_member(stat(own=30, minor=5))
    faults.inherited_by_member(stat(0), stat(35))
    assert faults.signs
    assert closed(faults) == (False, 0)


def test_a_member_that_inherits_more_than_is_known_is_a_sign(faults: FaultLedger) -> None:
    faults.left_to_member(stat(own=30))
    faults.inherited_by_member(stat(0), stat(42, major=3))
    assert faults.inherited == 45
    assert closed(faults) == (True, 15)


def test_what_the_monitor_inherits_and_no_process_reports_is_a_sign(
    faults: FaultLedger, inherited: list[int]
) -> None:
    inherited[0] += 50
    faults.reported(101, 50)
    faults.compare_with_own()
    assert not faults.signs
    inherited[0] += 7
    faults.compare_with_own()
    assert faults.awaits
    assert closed(faults) == (False, 0)
    faults.open()
    faults.compare_with_own()
    assert not faults.awaits
    assert closed(faults) == (True, 7)


def test_what_the_monitor_inherits_just_before_the_report_counts_once(
    faults: FaultLedger, inherited: list[int]
) -> None:
    inherited[0] += 50
    faults.compare_with_own()
    assert faults.awaits
    assert closed(faults) == (False, 0)
    faults.open()
    faults.reported(101, 50)
    faults.compare_with_own()
    assert not faults.awaits
    assert closed(faults) == (False, 0)


def test_a_reaped_process_that_has_inherited_unseen_is_a_sign(faults: FaultLedger) -> None:
    faults.ended(stat(20), 20, ignored_sigchld=False)
    assert not faults.signs
    faults.ended(stat(26), 20, ignored_sigchld=False)
    assert closed(faults) == (True, 6)


def test_a_new_member_that_has_inherited_already_is_a_sign(faults: FaultLedger) -> None:
    faults.joined(stat(0))
    assert not faults.signs
    faults.joined(stat(9))
    assert closed(faults) == (True, 9)


def test_faults_that_are_unreported_make_their_sum_unknown_for_a_tick(faults: FaultLedger) -> None:
    for unknown in (
        faults.left_to_nobody_known,
        lambda: faults.ended(None, 0, ignored_sigchld=False),
    ):
        faults.open()
        unknown()
        faults.inherited_by_member(stat(0), stat(8))
        assert closed(faults) == (True, None)
    faults.open()
    faults.close_if_none_given()
    assert faults.unseen == 16


def test_faults_beside_a_report_that_is_yet_to_come_count_at_once(faults: FaultLedger) -> None:
    faults.left_to_us(101)
    faults.inherited_by_member(stat(0), stat(8))
    assert closed(faults) == (True, 8)
    assert faults.awaits
    faults.open()
    assert faults.signs
    faults.reported(101, 0)
    assert not faults.awaits


def test_what_a_known_process_had_after_it_was_read_is_reported_on_a_machine_that_gives_no_pids(
    faults: FaultLedger,
) -> None:
    faults.left_to_member(stat(own=30))
    faults.inherited_by_member(stat(0), stat(42, major=3))
    faults.close_if_none_given()
    assert (faults.suspicious, faults.unseen) == (False, 15)
    faults.open()
    faults.left_to_nobody_known()
    faults.close_if_none_given()
    assert faults.unseen is None


def test_who_ignores_sigchld_hides_how_many_there_were(faults: FaultLedger) -> None:
    assert closed(faults, ignores_sigchld=True) == (True, None)
    faults.open()
    faults.ended(stat(0), 0, ignored_sigchld=True)
    assert closed(faults) == (True, None)


def test_once_a_process_has_ignored_sigchld_unseen_ones_may_do_the_same(faults: FaultLedger) -> None:
    """The unseen one left 28 faults to its parent, the faults of its children to no process."""
    faults.ended(stat(0), 0, ignored_sigchld=True)
    faults.close(lambda: 300, ignores_sigchld=False)
    faults.open()
    faults.inherited_by_member(stat(0), stat(28))
    faults.close(lambda: 9000, ignores_sigchld=False)
    assert (faults.suspicious, faults.unseen) == (True, 300 + 9000 + 28)


@pytest.mark.parametrize(("pages", "unseen"), [(700, 700), (None, None)])
def test_lost_faults_are_at_most_the_pages_that_the_machine_allocated(
    faults: FaultLedger, pages: int | None, unseen: int | None
) -> None:
    faults.close(lambda: pages, ignores_sigchld=True)
    assert (faults.suspicious, faults.unseen) == (True, unseen)

"""What page faults tell from tick to tick."""

from __future__ import annotations

import pytest

from otel_memwatch.run.ledger_bounds import LedgerBounds
from otel_memwatch.run.tree_bounds import sum_over_time

MIB = 1 << 20
PAGE = 4096


def test_faults_told_at_a_tick_and_at_the_next_belong_to_the_window_before_both() -> None:
    bounds = LedgerBounds(PAGE)
    bounds.add_tick(1.0, 10 * MIB, 0)
    bounds.add_tick(2.0, 50 * MIB, 256)
    bounds.add_tick(3.0, 20 * MIB, 512)
    assert bounds.most(None, over=True) == 53 * MIB


def test_faults_told_at_the_next_tick_are_its_own_where_the_record_says_so() -> None:
    """Its bound is not below that of the tick before, where they may have been before that; unknown, they may be anywhere."""
    bounds = LedgerBounds(PAGE, carried=True)
    bounds.add_tick(1.0, 10 * MIB, 0)
    bounds.add_tick(2.0, 50 * MIB, 256)
    bounds.add_tick(3.0, 20 * MIB, 512)
    assert bounds.most(None, over=True) == 51 * MIB
    bounds.add_tick(4.0, 20 * MIB, None)
    assert bounds.most(None, over=True) is None
    assert bounds.most(sum_over_time([(2.5, 9.0, 70 * MIB)]), over=True) == 70 * MIB


def test_a_window_of_which_nothing_is_known_is_bounded_by_the_processes_in_it() -> None:
    bounds = LedgerBounds(PAGE)
    for time, high in ((1.0, 10 * MIB), (2.0, None), (3.0, 20 * MIB), (4.0, 0)):
        bounds.add_tick(time, high, 0)
    assert bounds.most(None, over=True) is None
    assert bounds.most(sum_over_time([(1.5, 2.5, 70 * MIB), (3.5, 9.0, 900 * MIB)]), over=True) == 70 * MIB


def test_nothing_is_certain_after_the_last_tick_of_a_tree_that_lives() -> None:
    bounds = LedgerBounds(PAGE)
    bounds.add_tick(1.0, 10 * MIB, 0)
    assert bounds.most(None, over=False) is None
    assert bounds.most(sum_over_time([(0.0, 2.0, 30 * MIB)]), over=False) == 30 * MIB
    assert LedgerBounds(PAGE).most(None, over=True) is None


@pytest.mark.parametrize("read_at", [0, 2])
def test_what_shares_tell_at_one_tick_corrects_the_guess_of_the_others(read_at: int) -> None:
    bounds = LedgerBounds(PAGE)
    for tick, guess in enumerate((200 * MIB, 100 * MIB, 160 * MIB)):
        bounds.add_guess(float(tick), guess, guess // 2 if tick == read_at else None)
    assert bounds.estimate.value == 100 * MIB
    assert bounds.low.value == (100 if read_at == 0 else 80) * MIB


def test_a_factor_corrects_the_guesses_since_the_reading_before() -> None:
    bounds = LedgerBounds(PAGE)
    for tick, (guess, factor) in enumerate(((100, 1.2), (200, None), (150, 0.5), (110, None))):
        bounds.add_guess(float(tick), guess * MIB, None if factor is None else 90 * MIB, factor)
    assert bounds.estimate.value == 125 * MIB
    bounds.add_guess(9.0, 260 * MIB, None)
    assert bounds.estimate.value == 185 * MIB

"""Pages that a run read again for lack of memory."""

from __future__ import annotations

from otel_memwatch.truth.refaults import (
    Shortage,
    are_foreign,
    are_proven,
    are_some,
    asked_again,
    faulted_again,
    not_own,
    shortage,
    surplus,
)

MIB = 1 << 20


def test_refaults_before_the_limit_was_reached_belong_to_an_earlier_run() -> None:
    assert are_foreign(100 * MIB, 100 * MIB)
    assert not are_foreign(MIB, 2 * MIB)  # the libraries of any program
    assert not are_foreign(5 * MIB, 100 * MIB)


def test_mapped_bytes_beyond_the_address_space_were_read_more_than_once() -> None:
    assert surplus(2400 * MIB, 10 * MIB, 300 * MIB) == 2090 * MIB
    assert surplus(2400 * MIB, 2400 * MIB, 300 * MIB) == 0  # a scan by read calls
    assert surplus(2400 * MIB, 0, 2500 * MIB) == 0  # a scan of one mapping


def test_the_first_reading_of_each_page_is_the_size_of_the_files() -> None:
    assert shortage(2400 * MIB, 2144 * MIB, 2144 * MIB, 98 * MIB) == Shortage(
        2144 * MIB, 256 * MIB, 158 * MIB
    )
    assert shortage(2400 * MIB, 2144 * MIB, 2390 * MIB, 98 * MIB) == Shortage(2144 * MIB, None, None)


def test_a_first_reading_is_no_refault_of_the_run() -> None:
    """A scan of 256 MiB that an earlier run had dropped, at its limit of 18 MiB from the first sample on."""
    assert not_own(256, 256, held=17, written=0) == (17, 17)
    assert not_own(2144, 2400, held=98, written=0) == (0, 98)
    assert not_own(256, 256, held=17, written=256) == (0, 0)
    assert not_own(4, 4, held=17, written=0) == (4, 4)


def test_pages_read_ahead_and_dropped_were_not_asked_for_again() -> None:
    read = 256 * MIB
    # A copy of 256 MiB at 18 MiB.
    assert asked_again(475 * MIB, 254 * MIB, read, 0) == 2 * MIB
    # A mapping, at random and in sequence.
    assert asked_again(2144 * MIB, read, 0, faulted_again(2144 * MIB, 300, 0)) == 2144 * MIB
    assert asked_again(480 * MIB, read, 0, faulted_again(480 * MIB, 1, 10_000)) == 480 * MIB
    # Three passes over a mapping of 256 MiB at 200, in large folios: windows of 8 MiB with three faults each.
    windows = sum(faulted_again(8 * MIB, 0, 3) for _ in range(60))
    assert asked_again(490 * MIB, 256 * MIB, 0, windows) == 360 * MIB
    # Read calls.
    assert asked_again(2144 * MIB, read, 2400 * MIB, 0) == 2144 * MIB


def test_first_readings_prove_the_counter() -> None:
    assert are_proven(98 * MIB)
    assert not are_proven(MIB)


def test_refaults_may_be_a_part_of_the_dropped_pages() -> None:
    assert are_some(126, 552)
    assert not are_some(3, 552)
    assert not are_some(0, 0)

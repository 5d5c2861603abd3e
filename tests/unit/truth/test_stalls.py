"""Time without progress for lack of memory or CPU."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.stalls import (
    Shortage,
    StallWindow,
    are_foreign,
    are_proven,
    asked_again,
    faulted_again,
    is_worth_naming,
    longest_wait,
    not_own,
    shortage,
    surplus,
    throttled_share,
    waited,
)

MIB = 1 << 20

CASES = [
    ("a scan reads each byte once", StallWindow(0.1, 0.02, 50 * MIB, 0, 6), 0.0),
    ("refaults without reading from storage", StallWindow(0.1, 0.02, 0, 5 * MIB, 0), 0.0),
    ("all of it is read again", StallWindow(0.1, 0.01, 50 * MIB, 50 * MIB, 6), 0.09),
    ("half of it is read again", StallWindow(0.1, 0.01, 50 * MIB, 25 * MIB, 6), 0.045),
    ("more refaults than bytes read: another process's", StallWindow(0.1, 0.01, 5 * MIB, 50 * MIB, 9), 0.09),
    ("a program that sleeps reads one page again", StallWindow(1.0, 0.0, 4096, 4096, 1), 0.0200819),
    ("other threads go on", StallWindow(0.1, 0.3, 50 * MIB, 50 * MIB, 6), 0.0),
]


@pytest.mark.parametrize(("window", "seconds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_waiting_for_pages_that_were_there_before(window: StallWindow, seconds: float) -> None:
    assert waited(window) == pytest.approx(seconds, abs=1e-6)


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


def test_the_kernel_adds_throttled_time_of_all_processors() -> None:
    assert throttled_share(6.0, 10.0, 8) == pytest.approx(0.075)
    assert throttled_share(5.0, 10.0, 1) == 0.5
    assert throttled_share(50.0, 10.0, 1) == 1.0
    assert throttled_share(5.0, 0.0, 1) == 0.0


def test_a_moment_of_waiting_is_not_reported() -> None:
    """A file that grep reads twice at 104 MiB, from a quick disk: 0.33 s instead of 0.32."""
    assert not is_worth_naming(0.13, 0.33)
    assert is_worth_naming(0.13, 3.3)
    assert not is_worth_naming(0.05, 100.0)
    assert not is_worth_naming(None, 100.0)
    assert is_worth_naming(0.5, None)


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


def test_waiting_for_a_processor_is_no_waiting_for_memory() -> None:
    """Two checksums of 256 MiB at 104 MiB, beside 20 busy programs: 0.9 of 3.8 s in which no user code ran while rereading."""
    again, read = 256 * MIB, 512 * MIB
    assert longest_wait(0.05, 0.02, 0.12, again=again, read=read, read_chars=read) == pytest.approx(0.09)
    # A mapping read at random: the kernel works on it all the time.
    assert longest_wait(4.6, 8.8, 11.7, again=99 * read, read=100 * read, read_chars=0) == pytest.approx(
        24.9, abs=0.1
    )


def test_first_readings_prove_the_counter() -> None:
    assert are_proven(98 * MIB)
    assert not are_proven(MIB)

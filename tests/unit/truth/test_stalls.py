"""Time without progress for lack of memory or CPU."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.stalls import (
    StallWindow,
    is_worth_naming,
    longest_stall,
    longest_wait,
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


def test_a_stall_on_one_of_several_processors_in_use_is_a_part_of_the_machines_pressure() -> None:
    assert longest_stall(0.65, 3.16, others=1.0, processors=2) == pytest.approx(1.3)  # its cgroup's: 1.30
    assert longest_stall(0.44, 3.08, others=0.0, processors=2) == 0.44  # its cgroup's: 0.43
    assert longest_stall(0.1, 3.0, others=None, processors=8) == 0.8
    assert longest_stall(0.1, 3.0, others=None, processors=64) == 3.0
    assert longest_stall(0.1, 3.0, others=80.0, processors=8) == 0.8


def test_waiting_for_a_processor_is_no_waiting_for_memory() -> None:
    """Two checksums of 256 MiB at 104 MiB, beside 20 busy programs: 0.9 of 3.8 s in which no user code ran while rereading."""
    again, read = 256 * MIB, 512 * MIB
    assert longest_wait(0.05, 0.02, 0.12, again=again, read=read, read_chars=read) == pytest.approx(0.09)
    # A mapping read at random: the kernel works on it all the time.
    assert longest_wait(4.6, 8.8, 11.7, again=99 * read, read=100 * read, read_chars=0) == pytest.approx(
        24.9, abs=0.1
    )

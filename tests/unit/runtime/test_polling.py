"""What may hang is asked in a separate thread."""

from __future__ import annotations

import threading
import time

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.polling import LONGEST_REST, Pace, Poller, answered

GUARD = 20.0


def take(poller: Poller) -> object:
    """The next values, waited for."""
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        values = poller.new_values(time.monotonic())
        if values is not None:
            return values
        time.sleep(0.002)
    raise AssertionError("no values came")


def test_values_are_given_out_once() -> None:
    counter = iter(range(1_000_000))
    poller = Poller("it", lambda: (next(counter),), 0.01, "hint")
    poller.start()
    try:
        first, second = take(poller), take(poller)
    finally:
        poller.close()
    assert first != second


def test_a_hanging_call_is_reported_and_delays_no_other() -> None:
    release = threading.Event()
    poller = Poller("The driver", lambda: (release.wait(GUARD),), 0.01, "reset it")
    poller.start()
    try:
        time.sleep(0.05)
        with pytest.raises(Unavailable, match=r"The driver has not answered for \d+ s \(reset it\)"):
            poller.new_values(time.monotonic() + 60)
        release.set()
        assert take(poller) == (True,)
    finally:
        release.set()
        poller.close(GUARD)


def test_an_error_is_reported_until_it_is_over() -> None:
    broken = threading.Event()
    broken.set()

    def poll() -> tuple[int]:
        if broken.is_set():
            raise OSError("gone")
        return (1,)

    poller = Poller("it", poll, 0.01, "hint")
    poller.start()
    try:
        deadline = time.monotonic() + GUARD
        with pytest.raises(OSError, match="gone"):
            take(poller)
        broken.clear()
        while time.monotonic() < deadline:
            try:
                assert take(poller) == (1,)
                break
            except OSError:
                time.sleep(0.002)
    finally:
        poller.close()


def test_close_does_not_wait_for_a_thread_that_hangs() -> None:
    release = threading.Event()
    poller = Poller("it", lambda: (release.wait(GUARD),), 0.01, "hint")
    poller.start()
    poller.close(0.01)
    assert not release.is_set()
    release.set()


def test_an_answer_comes_back_or_its_error() -> None:
    assert answered(lambda: 7, GUARD, "it", "hint") == 7
    with pytest.raises(ZeroDivisionError):
        answered(lambda: 1 // 0, GUARD, "it", "hint")


def test_no_answer_in_time_is_an_absent_feature() -> None:
    release = threading.Event()
    with pytest.raises(Unavailable, match=r"did not answer within 0\.01 s"):
        answered(lambda: release.wait(GUARD), 0.01, "The driver", "hint")
    release.set()


def test_what_is_asked_for_in_rounds_is_due_in_the_round_that_is_nearest() -> None:
    pace = Pace(1.0, early=0.05)
    due = [tick for tick in range(40) if pace.due(5.0 + tick / 10)]
    assert due == [0, 10, 20, 30]
    late = Pace(0.1, early=0.05)
    assert [late.due(5.0 + tick * 0.09) for tick in range(4)] == [True] * 4


def test_a_slow_reading_is_made_less_often() -> None:
    pace = Pace(1.0, early=0.1, share=0.01)
    assert pace.due(0)
    pace.spent(0, 0.001)
    assert not pace.due(0.5)
    assert pace.due(1.0)
    pace.spent(1.0, 0.05)
    assert not pace.due(5.9)
    assert pace.due(6.0)
    pace.spent(6.0, 3600)
    assert pace.due(6.0 + LONGEST_REST)


def test_values_that_are_not_read_yet_are_kept_until_there_are_newer_ones() -> None:
    poller = Poller("it", lambda: (), 1.0, "hint")
    poller._publish((1, None, 3))
    poller._publish((None, None, 4))
    assert poller.new_values(0.0) == (1, None, 4)
    assert poller.new_values(0.0) is None

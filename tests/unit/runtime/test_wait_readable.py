"""Waiting until something can be read."""

from __future__ import annotations

import fcntl
import os

import pytest

from otel_memwatch.runtime.wait_readable import readable


def test_descriptors_of_any_number_are_waited_for() -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1100)
    assert high > 1023
    try:
        assert readable([high, reading], 0) == []
        assert readable([], 0.001) == []
        os.write(writing, b"x")
        assert readable([high], None) == [high]
        assert os.read(high, 2) == b"x"
        os.close(writing)
        # the other end is closed
        assert readable([high], 5) == [high]
        assert os.read(high, 1) == b""
    finally:
        os.close(reading)
        os.close(high)


@pytest.mark.parametrize("seconds", [25 * 86_400.0, 1e300, float("inf")])
def test_a_wait_longer_than_the_kernel_takes(seconds: float) -> None:
    """poll(2) takes 24 days at most."""
    reading, writing = os.pipe()
    os.close(writing)
    assert readable([reading], seconds) == [reading]
    os.close(reading)

"""Units of GPU memory; what is read of devices stands in tests/contract/compat/fastai/test_memory.py."""

from __future__ import annotations

from otel_memwatch.compat.fastai import b2mb


def test_megabytes_are_rounded_towards_zero() -> None:
    assert [b2mb(x) for x in (2**20 - 1, 2**20, -(2**20) - 1, 0)] == [0, 1, -1, 0]

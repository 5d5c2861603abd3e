"""Detection of exact sums, on contents of statm as different kernels show them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from otel_memwatch.runtime.kernel import parse_release
from otel_memwatch.runtime.procfs import sums


def statm(*pages: int) -> Iterator[bytes]:
    return (f"9000 {count} 700 1 0 900 0\n".encode() for count in pages)


@pytest.mark.parametrize(
    ("readings", "exact"),
    [
        # exact sums
        ((1000, 1020, 1020, 1027), True),
        # held back by a processor: all of it, or a batch comes at once
        ((1000, 1000, 1000, 1000), False),
        ((1000, 1032, 1032, 1032), False),
        ((1000, 1000, 1000, 1033), False),
        # on 64 processors
        ((1000, 1128, 1128, 1128), False),
        # the process allocated something else meanwhile
        ((1000, 1020, 1020, 1029), False),
    ],
)
def test_an_exact_sum_rises_by_the_pages_touched(
    monkeypatch: pytest.MonkeyPatch, readings: tuple[int, ...], exact: bool
) -> None:
    contents = statm(*readings)
    monkeypatch.setattr(sums.os, "pread", lambda *_: next(contents))
    assert sums._rises_by_page(os.devnull) is exact


def test_without_proc_no_sum_is_exact() -> None:
    assert not sums._rises_by_page("/proc/self/none/statm")


@pytest.mark.skipif(parse_release(os.uname().release) < (6, 16), reason="the kernel has no exact sums")
def test_this_kernel_has_exact_sums() -> None:
    assert sums.sums_are_exact()

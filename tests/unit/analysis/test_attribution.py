"""Which operation a peak belongs to."""

from __future__ import annotations

import pytest

from otel_memwatch.analysis.attribution import operation_of
from otel_memwatch.model import Peak, RecordedOperation

MIB = 1 << 20


def operation(name: str, start: float, end: float, mib: float) -> RecordedOperation:
    peak = Peak.exact(round(mib * MIB), how="VmHWM")
    return RecordedOperation(name, 1, 1, start, end, "ok", "t", "s", None, peak)


def test_of_several_whose_processes_reach_it_the_largest_has_it() -> None:
    """A process's size has pages of files, which the tree's need has not: all three of 5 MiB more than that reach it."""
    epochs = [operation(f"epoch {n}", n, n + 0.3 * (n + 1), 155 + 2.0 * n) for n in range(3)]
    tree = Peak.exact(154 * MIB, MIB // 2, how="cgroup watermark")._replace(at=2.5)
    assert operation_of(tree, epochs, 0.0) == 2


@pytest.mark.parametrize(("inner", "found"), [(159.0, 1), (158.9, 1), (120.0, 0)])
def test_what_an_operation_inside_reached_within_the_error_is_its(inner: float, found: int) -> None:
    listed = [operation("epoch", 0, 10, 159), operation("batch", 2, 3, inner)]
    assert operation_of(Peak.exact(154 * MIB, MIB // 2, how="")._replace(at=2.5), listed, 0.0) == found

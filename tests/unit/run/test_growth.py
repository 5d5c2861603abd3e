"""Growth over the repeats of operations: which operation keeps it, and whether it belongs to files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from otel_memwatch.model import RecordedOperation
from otel_memwatch.record.operation_lines import OperationRow, row_of
from otel_memwatch.reports.sections.growth import handle_words, leak_words, words
from otel_memwatch.run.growth import (
    GrowthFinding,
    HandleFloors,
    Repeats,
    TimeFloors,
    exported,
    without_history,
)
from otel_memwatch.truth.service_growth import ServiceLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run import RecordedRun

MIB = 1 << 20


def _run(
    *,
    within: int = 2,
    between: int = 0,
    first: int = 0,
    anonymous: float = 1.0,
    exits: bool = False,
    epochs: bool = False,
) -> list[GrowthFinding]:
    """Return the findings of 40 steps of one second; memory in MiB.

    `first`: additional growth of each of the first three. `anonymous`: share of the growth that samples show.
    """
    repeats, floors, level = Repeats(), TimeFloors(), 100
    for step in range(40):
        begin = level
        level += within + (first if step < 3 else 0)
        repeats.add(_operation(f"Step {step}", step, step + 0.9, begin, level))
        if epochs:
            repeats.add(_operation("Epoch", step - 0.05, step + 0.95, begin, level))
        floors.add((60 + (level - 100) * anonymous) * MIB, ServiceLoad(step + 0.91, step, 1))
        level += between
    if exits:
        floors.add(0, ServiceLoad(40, 40, 1))
    return repeats.findings(floors, 0)


def _operation(name: str, start: float, end: float, first: int, last: int) -> OperationRow:
    return row_of(
        RecordedOperation(
            name, 7, 1, start, end, "ok", "", "", None, None, start_bytes=first * MIB, end_bytes=last * MIB
        )
    )


@pytest.mark.parametrize("exits", [False, True])
def test_steps_that_keep_2_mib(*, exits: bool) -> None:
    (found,) = _run(exits=exits)
    assert (found.kind, found.operation, found.pid, found.inside) == ("leak", "Step", 7, True)
    assert found.per_repeat == pytest.approx((2 * MIB, 2 * MIB, 2 * MIB), rel=0.01)


def test_growth_between_the_steps_is_not_theirs() -> None:
    (found,) = _run(within=0, between=2)
    assert (found.kind, found.inside) == ("leak", False)


def test_growth_after_a_warm_up_within_steps_is_not_theirs() -> None:
    (found,) = _run(within=0, between=2, first=100)
    assert (found.kind, found.inside) == ("leak", False)


def test_the_record_for_snapshots_is_no_leak_of_the_program() -> None:
    (small,) = _run()
    ours = without_history(small)
    assert (small.kind, ours.kind) == ("leak", "recorded_history")
    (large,) = _run(within=10)
    assert without_history(large) == large
    run = SimpleNamespace(totals={"processes": 1})
    assert words(cast("RecordedRun", run), ours).endswith(
        "which the record of allocations for --torch-snapshot may explain"
    )


def test_pages_of_files_are_no_leak() -> None:
    assert _run(anonymous=0.2) == []


def test_the_innermost_operation_is_named() -> None:
    (found,) = _run(epochs=True)
    assert found.operation == "Step"


def test_malformed_findings_are_left_out() -> None:
    (found,) = _run()
    assert GrowthFinding.of(found._asdict()) == found
    for broken in (None, 3, {}, {**found._asdict(), "kind": 5}, {**found._asdict(), "bytes": "x"}):
        assert GrowthFinding.of(broken) is None
    far = GrowthFinding.of({**found._asdict(), "rate": 1e300, "low": -1e300, "high": 1e300})
    assert far is not None
    assert "TiB per repeat" in leak_words(far, alone=True)


@pytest.mark.parametrize(
    ("name", "grow", "leaks"),
    [
        ("threads", lambda hours: 40 + int(12 * hours), ["threads"]),
        ("descriptors", lambda hours: 900 + int(300 * hours), ["descriptors"]),
        ("processes", lambda hours: 5 + int(8 * hours), ["processes"]),
        ("threads", lambda hours: 40 + int(3 * hours), []),  # too few to matter
        ("threads", lambda hours: 40 + 30 * min(1, int(hours)), []),  # a pool that has grown
        ("descriptors", lambda hours: 900 + int(300 * (hours % 0.3)), []),  # given back again and again
        ("descriptors", lambda _: None, []),  # not read
    ],
)
def test_handles_that_are_not_given_back(
    name: str, grow: Callable[[float], int | None], leaks: list[str]
) -> None:
    handles = HandleFloors()
    for minute in range(4 * 60):
        counts = {"threads": 40, "descriptors": 900, "processes": 5, name: grow(minute / 60)}
        processes = counts["processes"] or 0
        load = ServiceLoad(60.0 * minute, 6.0 * minute, processes)
        handles.add(cast("Sample", SimpleNamespace(**counts)), load)
    found = handles.findings()
    assert [one.counted for one in found] == leaks
    assert GrowthFinding.each_of([one._asdict() for one in found]) == found
    assert exported(found)["memwatch.run.handle.leak"] == [
        ({"memwatch.handle.type": one.counted}, one.rate) for one in found
    ]
    for one in found:
        words = handle_words(one)
        assert words.startswith(f"{name} grow by ")
        assert " an hour for " in words

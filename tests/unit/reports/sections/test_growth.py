"""Sentences about growth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.reports.sections.growth import words
from otel_memwatch.run.growth import TimeFloors
from otel_memwatch.truth.service_growth import ServiceLoad

MIB = 1 << 20


@pytest.mark.parametrize(
    ("state", "last"),
    [
        ("running", "not yet known whether it is a leak, earliest in 1 h 30 min"),
        ("incomplete", "a leak is known after 2 h 30 min at the earliest"),
    ],
)
def test_an_early_growth_says_when_a_leak_is_known(state: str, last: str) -> None:
    floors = TimeFloors()
    for minute in range(60):
        floors.add((500 + minute) * MIB, ServiceLoad(60.0 * minute, 12.0 * minute, 2))
    found = floors.finding(0.0)
    assert found is not None
    run: Any = SimpleNamespace(state=state, seconds=3600.0, totals={"processes": 2})
    assert words(run, found) == f"memory grew by 30.0 MiB in 30 min 00 s; {last}"

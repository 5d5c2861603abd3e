"""Recordings that stop early, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Evidence, Peak
from otel_memwatch.truth.partial_records import exported_fields, exported_peak, is_after, is_over, stopped
from tests.support.run_directory import MIB

ERROR = 2


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (None, None),
        (Peak.exact(500, ERROR, at=0.5, pid=7), Peak.interval(498, None, at=0.5, pid=7)),
        (Peak.interval(80, 300), Peak.interval(80, None)),
        (Peak.interval(0, 300), None),
        (Peak.censored(10), None),
        (Peak.censored(10, 5), Peak.interval(5, None)),
        (Peak.sampled(80), Peak.sampled(80)),
    ],
)
def test_stopped(peak: Peak | None, expected: Peak | None) -> None:
    assert stopped(peak) == expected


@pytest.mark.parametrize(
    ("end", "last_tick", "anybody_alive", "over"),
    [(9.0, 9.0, False, True), (9.0, 9.5, False, True), (9.0, 8.9, False, False), (9.0, 9.5, True, False),
     (None, 9.5, False, False), (9.0, None, False, False)],
)  # fmt: skip
def test_is_over(end: float | None, last_tick: float | None, anybody_alive: bool, over: bool) -> None:
    assert is_over(end, last_tick, anybody_alive=anybody_alive) is over
    assert is_after(9.0, 9.0005) is False
    assert is_after(9.01, 9.0) is True


@pytest.mark.parametrize(
    ("exported", "ended", "expected"),
    [
        ((66_700, "interval", None, 67_400), True, Peak.interval(66_700, 67_400)),
        ((66_700, None, None, 67_400), True, Peak.interval(66_700, 67_400)),  # a live export has no certainty
        ((66_700, "interval", 66_000, 67_400, 66_700), True, Peak.interval(66_000, 67_400, estimate=66_700)),
        ((500, "exact", 499, 501), True, Peak.exact(500, 1)),
        ((500, "exact"), True, Peak.exact(500)),
        ((500, "exact", 499, 501), False, Peak.interval(499, None)),
        ((500, "censored", None, 500), True, Peak.censored(500)),
        ((500, "censored", None, 500), False, None),
        ((500, "sampled"), False, Peak.sampled(500)),
        ((500, "interval", 600, 400), True, Peak.interval(600, None)),  # nonsense
    ],
)
def test_an_exported_peak_keeps_its_certainty(
    exported: tuple[Any, ...], ended: bool, expected: Peak | None
) -> None:
    by_export = expected and expected._replace(evidence=(Evidence.OTLP,))
    assert exported_peak(*exported, ended=ended) == by_export


def test_what_is_exported_comes_back() -> None:
    for peak in (
        Peak.interval(66 * MIB, 67 * MIB, estimate=66 * MIB + 5),
        Peak.exact(500 * MIB, MIB),
        Peak.censored(9 * MIB, 5 * MIB),
        Peak.censored(9 * MIB),
        Peak.interval(5, None),
    ):
        fields = exported_fields(peak, "")
        certainty = str(fields.pop("certainty"))
        back = exported_peak(peak.bytes, certainty, **fields)  # type: ignore[arg-type]
        assert back is not None
        assert back._replace(evidence=()) == peak

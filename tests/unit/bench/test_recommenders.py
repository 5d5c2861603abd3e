"""Requests of other recommenders."""

from __future__ import annotations

from tests.bench.advice.recommenders import krr, polled, seff, vpa

MIB = 1 << 20


def test_a_poll_sees_what_exists_at_its_moments_only() -> None:
    times, sizes = [0.0, 5.0, 6.0, 20.0, 40.0], [1.0, 9.0, 2.0, 3.0, 0.0]
    assert polled(times, sizes, 15, 0.0) == 3.0
    assert polled(times, sizes, 15, 5.5) == 9.0
    assert polled(times, sizes, 60, 30.0) == 3.0
    assert polled(times, sizes, 60, 50.0) is None
    assert polled([], [], 60, 0.0) is None


def test_rules_are_theirs() -> None:
    seen = [400.0 * MIB] * 9 + [1000.0 * MIB, None]
    assert vpa(seen) == 400 * MIB * 1.15
    assert krr(seen) == 1000 * MIB * 1.15
    assert seff(seen) == 1000 * MIB
    assert (vpa([None]), krr([None]), seff([None])) == (250 * MIB, 100 * MIB, 0)

"""Actions that the sampling thread repeats."""

from __future__ import annotations

from otel_memwatch.monitor.recording.periodic import PeriodicAction


def test_an_action_runs_at_the_first_sample_at_which_it_is_due() -> None:
    calls: list[float] = []
    action = PeriodicAction(calls.append, 1.0)
    action.run_if_due(5.0)
    assert calls == []
    action.due = 0.0
    for now in (5.0, 5.5, 6.1, 7.0, 7.2):
        action.run_if_due(now)
    assert calls == [5.0, 6.1, 7.2]


def test_an_action_may_change_its_own_period() -> None:
    calls: list[float] = []

    def act(now: float) -> None:
        calls.append(now)
        action.period = 0.0 if now < 3 else 10.0

    action = PeriodicAction(act)
    action.due = 0.0
    for now in (1.0, 2.0, 3.0, 4.0, 14.0):
        action.run_if_due(now)
    assert calls == [1.0, 2.0, 3.0, 14.0]

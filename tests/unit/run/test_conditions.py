"""Conditions of a recording."""

from __future__ import annotations

import pytest

from otel_memwatch.run.conditions import RunConditions


@pytest.mark.parametrize(
    ("attached", "start", "older"),
    [
        (True, 99.0, True),
        (True, 99.989, True),
        (True, 99.995, False),  # it began between 99.995 and 100.005
        (True, 100.0, False),
        (False, 99.0, False),
    ],
)
def test_only_a_process_that_certainly_began_before_the_run_is_older(
    attached: bool, start: float, older: bool
) -> None:
    conditions = RunConditions.of({})._replace(joined=attached, started=100.0)
    assert conditions.is_older(start) is older


def test_all_processors_of_the_machine_hold_a_part_of_a_cgroups_charge() -> None:
    """A monitor on one of them, as by taskset or in a cpuset, says nothing about those of its run."""
    info = {"host": {"cpus": 1}, "processors": 64}
    conditions = RunConditions.of(info)
    assert (conditions.processors, conditions.usable_cpus) == (64, 1)
    assert conditions.charge_error == 64 * 256 * 1024
    assert RunConditions.of({"host": {"cpus": 4}}).processors == 4  # an older record

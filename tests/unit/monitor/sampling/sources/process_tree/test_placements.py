"""Stays of threads of the run on processors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.model import ChildExit
from otel_memwatch.monitor.sampling.sources.process_tree import ledgers
from otel_memwatch.monitor.sampling.sources.process_tree.ledgers import Placements
from otel_memwatch.runtime.kernel import PROCESSORS_VARIABLE

SCHED = b"job\nse.sum_exec_runtime : 12.5\nse.nr_migrations : 2\nnr_switches : 30\n"


def _end(**fields: Any) -> ChildExit:
    known = dict.fromkeys(ChildExit._fields) | {"pid": 50, "main": True, **fields}
    return ChildExit(**known)  # type: ignore[arg-type]


@pytest.fixture
def placements(monkeypatch: pytest.MonkeyPatch) -> Placements:
    monkeypatch.setenv(PROCESSORS_VARIABLE, "64")
    return _placements()


def _placements(**fields: object) -> Placements:
    own_cgroup = SimpleNamespace(packets=None)
    context: Any = SimpleNamespace(**{"own_cgroup": own_cgroup, "adopt": True, **fields})
    pids: Any = SimpleNamespace(given_to_ended=lambda most: 4 if most else 8)
    return Placements(context, pids)


@pytest.mark.parametrize(
    ("ends", "most"),
    [
        ([], 5),  # the target, and the threads of four pids
        ([{"switches": 7}], 12),
        ([{"switches": 7}, {"switches": 3}], 15),
        # Thirty of the target's hundred switches are of its first thread, which changed its processor twice. They suffice
        # for 64 processors, so it does not matter whose pids were assigned.
        ([{"switches": 100, "sched": SCHED}], 81),
        ([{"switches": 30, "sched": SCHED}], 7),
        ([{"switches": 29, "sched": SCHED}], 7),  # it was read twice, and ended in between
        ([{"switches": 7}, {"switches": None}], None),
        # No other thread began, so the pids are of other programs.
        ([{"switches": 30, "sched": SCHED, "lone": True}], 3),
        ([{"switches": 30, "sched": SCHED, "lone": True}, {"switches": 0}], 7),
    ],
)
def test_each_begins_once_and_runs_again_after_each_switch(
    placements: Placements, ends: list[dict[str, Any]], most: int | None
) -> None:
    for fields in ends:
        lone = fields.pop("lone", False)
        placements.ended(_end(**fields), lone=lone)
    assert placements.most() == most


@pytest.mark.parametrize(
    ("after", "most"),
    [
        (("00000007", "00000000", "00000003"), 12),  # no packet
        (("00000008", "00000000", "00000009"), 14),
        (("00000007", "00000000"), 76),  # a processor less
        ((), 76),
    ],
)
def test_processors_that_receive_packets_count(
    monkeypatch: pytest.MonkeyPatch, after: tuple[str, ...], most: int
) -> None:
    """A client of 64 servers, each of which was on another processor."""
    monkeypatch.setenv(PROCESSORS_VARIABLE, "64")
    placements = _placements(own_cgroup=SimpleNamespace(packets=("00000007", "00000000", "00000003")))
    monkeypatch.setattr(ledgers, "packets", lambda: after)
    placements.ended(_end(switches=7), lone=False)
    assert placements.most() == most


def test_it_counts_only_where_a_cgroup_of_the_run_is_inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESSORS_VARIABLE, "64")
    assert _placements(own_cgroup=None).most() is None
    assert _placements(adopt=False).most() is None
    monkeypatch.setenv(PROCESSORS_VARIABLE, "2")
    assert _placements().most() is None

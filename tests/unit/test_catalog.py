"""The choice of metrics: profiles that hold each other, names, beginnings of names."""

from __future__ import annotations

import pytest

from otel_memwatch.catalog import BOUNDS, METRICS, choose_metrics, prometheus_names
from otel_memwatch.config import settings
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.telemetry.settings import wanted_metrics


def test_each_profile_holds_those_before_it() -> None:
    minimal, default, everything = map(choose_metrics, ("minimal", "default", "all"))
    assert minimal < default < everything == METRICS.keys()


def test_names_and_beginnings_of_names() -> None:
    assert choose_metrics("none") == frozenset()
    assert choose_metrics("process.uptime, process.cpu.time") == {"process.uptime", "process.cpu.time"}
    assert choose_metrics("hw.*") == {name for name in METRICS if name.startswith("hw.")}
    assert choose_metrics("minimal,process.uptime") == choose_metrics("minimal") | {"process.uptime"}


@pytest.mark.parametrize("choice", ["minimum", "default,process.uptme", "gpu.*", "*.gpu"])
def test_what_chooses_nothing_is_a_mistake(choice: str) -> None:
    with pytest.raises(UsageError, match="unknown metric or profile"):
        settings("wrap", {"metrics": choice}, {})


@pytest.mark.parametrize(
    ("how", "there", "missing"),
    [
        ("off", set(), {"memwatch.operation.count", *BOUNDS}),
        ("gauges", {"memwatch.operation.memory.peak.max", "memwatch.operation.time"}, set(BOUNDS)),
        ("histograms", {"memwatch.operation.memory.peak.max", *BOUNDS}, set()),
    ],
)
@pytest.mark.parametrize("metrics", ["minimal", "default", "all"])
def test_metrics_of_operations_are_chosen_by_themselves(
    metrics: str, how: str, there: set[str], missing: set[str]
) -> None:
    chosen = wanted_metrics({"metrics": metrics, "operation_metrics": how})
    assert there <= chosen
    assert not missing & chosen
    assert "memwatch.tree.memory.peak" in chosen


def test_none_is_none() -> None:
    assert wanted_metrics({"metrics": "none", "operation_metrics": "histograms"}) == frozenset()


def test_names_in_prometheus_do_not_collide() -> None:
    names = [name for row in METRICS.values() for name in prometheus_names(row)]
    assert len(names) == len(set(names))

"""Instruments of the catalogue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_memwatch import catalog
from otel_memwatch.model import Column, Snapshot
from otel_memwatch.monitor.telemetry.frame import Frame, create_instruments, join_columns

TREE = Column(catalog.MEMWATCH_TREE_MEMORY_USAGE)
LIMIT = "hw.gpu.memory.limit"


def usage(device: str) -> Column:
    return Column(catalog.HW_GPU_MEMORY_USAGE, (("hw.id", device),))


def collected(reader: InMemoryMetricReader) -> dict[str, list[tuple[str, float]]]:
    """Device and value of each point, by metric."""
    data = reader.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    metrics = (metric for scope in resource.scope_metrics for metric in scope.metrics)
    return {metric.name: points for metric in metrics if (points := _points(metric.data))}


def _points(data: Any) -> list[tuple[str, float]]:
    return sorted((point.attributes.get("hw.id", ""), point.value) for point in data.data_points)


def test_a_late_driver_adds_series_to_metrics_that_another_driver_has() -> None:
    """The kernel's driver answers early and NVIDIA's late: both have the memory in use, one has the limit too."""
    early = (TREE, usage("kernel"))
    late = (*early, usage("nvidia"), Column(LIMIT, (("hw.id", "nvidia"),)))
    latest = SimpleNamespace(snapshot=Snapshot(0.0, 0.0, (1, 20)))
    frame = Frame(
        early, lambda: latest.snapshot, health=dict, ticks=lambda: (0, 0), peaks=lambda: None, failures=dict
    )
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    chosen = frozenset(column.metric for column in late)
    create_instruments(meter, frame, chosen)
    before = {TREE.metric: [("", 1)], catalog.HW_GPU_MEMORY_USAGE: [("kernel", 20)]}
    assert collected(reader) == before
    join_columns(meter, frame, chosen, late)
    assert collected(reader) == before, "the last snapshot is older"
    latest.snapshot = Snapshot(1.0, 1.0, (1, 20, 30, 40))
    assert collected(reader) == {
        TREE.metric: [("", 1)],
        catalog.HW_GPU_MEMORY_USAGE: [("kernel", 20), ("nvidia", 30)],
        LIMIT: [("nvidia", 40)],
    }

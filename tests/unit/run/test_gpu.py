"""GPU peaks of a run and of its operations, from what allocators reported."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Certainty, Peak, RecordedOperation
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.record.operation_lines import row_of
from otel_memwatch.run import attribution
from otel_memwatch.run.gpu import allocator_figures
from otel_memwatch.run.operation_aggregator import OperationAggregator
from otel_memwatch.run.results import Peaks
from otel_memwatch.run.spans import operation_attributes

DEVICE = "GPU-1"


def told(low: int, high: int | None, **more: Any) -> dict[str, Any]:
    certainty = "exact" if low == high else "interval"
    return {"allocator": "torch.cuda", "peak": low, "low": low, "high": high, "certainty": certainty, **more}


def operation(name: str, start: float, end: float, rss: int = 1000, **gpu: Any) -> RecordedOperation:
    return RecordedOperation(
        name, 7, 1, start, end, "ok", "t", "s", None, Peak.exact(rss), gpu=gpu.get("gpu", {})
    )


def test_exact_figures_and_bounds_are_distinguished() -> None:
    gpu = {DEVICE: told(5, 5, reserved_peak=8, ooms=1, retries=2, fragmentation=3), "cuda:1": told(5, None)}
    exact, bounded = allocator_figures(operation("a", 0, 1, gpu=gpu))
    assert (exact.peak.certainty, exact.peak.bytes) == (Certainty.EXACT, 5)
    assert (exact.reserved_peak, exact.ooms, exact.retries, exact.fragmentation) == (8, 1, 2, 3)
    assert (bounded.peak.certainty, bounded.peak.low, bounded.peak.high) == (Certainty.INTERVAL, 5, None)


def test_what_is_not_of_the_records_form_is_left_out() -> None:
    assert allocator_figures(operation("a", 0, 1, gpu={DEVICE: "much", "x": {"low": "5"}, "y": {}})) == []


def attributed(peaks: Peaks, operations: list[RecordedOperation], started: float) -> Peaks:
    listed = attribution.Candidates(ListedOperations(operations))
    return attribution.attribute_peaks(peaks, listed, started, alone=lambda _begin, _end: True)


def test_a_gpus_peak_belongs_to_the_operation_of_its_moment_not_of_its_size() -> None:
    operations = [operation("large in RAM", 10, 11, rss=10**9), operation("on the GPU", 12, 13)]
    peaks = Peaks(gpu={DEVICE: Peak.sampled(5000, at=2.5)})
    assert attributed(peaks, operations, 10.0).gpu[DEVICE].operation == "on the GPU"


def test_an_allocator_that_held_more_than_any_tick_saw_raises_the_peak() -> None:
    gpu = {DEVICE: told(400, 400, reserved_peak=600)}
    operations = [operation("outer", 10, 20, gpu=gpu), operation("inner", 11, 12, gpu=gpu)]
    peak = attributed(Peaks(gpu={DEVICE: Peak.sampled(500, at=9.0)}), operations, 10.0).gpu[DEVICE]
    assert (peak.bytes, peak.operation, peak.pid, peak.how) == (600, "inner", 7, "held by torch.cuda")
    assert peak.certainty is Certainty.SAMPLED


def test_what_libraries_used_is_bounded_by_the_sum_of_the_processes() -> None:
    operations = [
        operation("a", 0, 1, gpu={DEVICE: told(5, 9)}),
        operation("b", 2, 3, gpu={DEVICE: told(6, 8)}),
        operation("a", 0, 1, gpu={DEVICE: told(3, 3)})._replace(pid=8),
    ]
    used = attributed(Peaks(gpu={DEVICE: Peak.sampled(100)}), operations, 0.0).gpu_used[DEVICE]
    assert (used.low, used.high, used.how) == (6, 12, "torch.cuda watermark")
    alone = attributed(Peaks(), operations[2:], 0.0).gpu_used[DEVICE]
    assert (alone.certainty, alone.bytes) == (Certainty.EXACT, 3)
    unknown = [*operations, operation("c", 4, 5, gpu={DEVICE: told(7, None)})]
    assert attributed(Peaks(), unknown, 0.0).gpu_used[DEVICE].high is None


def test_of_many_operations_the_bound_still_holds_for_all() -> None:
    so_far = OperationAggregator()
    for number in range(3000):
        low, high = (1, 900) if number == 7 else (500, 600)
        of_one = operation("step", number, number + 0.5, gpu={DEVICE: told(low, high)})
        so_far.close(row_of(of_one))
    found = attribution.attribute_peaks(
        Peaks(), so_far.candidates([]), 0.0, alone=lambda _begin, _end: True
    ).gpu_used[DEVICE]
    assert (found.low, found.high) == (500, 900)


def test_of_too_many_processes_no_bound_is_known() -> None:
    so_far = OperationAggregator()
    for number in range(2000):
        of_one = operation("step", number, number + 0.5, gpu={DEVICE: told(5, 9)})
        so_far.close(row_of(of_one._replace(pid=number)))
    found = attribution.attribute_peaks(
        Peaks(), so_far.candidates([]), 0.0, alone=lambda _begin, _end: True
    ).gpu_used[DEVICE]
    assert found.high is None


@pytest.mark.parametrize("name", ["cuda:0", "GPU:0", "GPU-1 cupy"])
def test_an_allocators_name_for_a_known_device_is_no_second_device(name: str) -> None:
    """JAX, TensorFlow and CuPy name devices in their own ways."""
    operations = [operation("a", 10, 20, gpu={name: told(400, 400, reserved_peak=600)})]
    found = attributed(Peaks(gpu={DEVICE: Peak.sampled(500, at=9.0)}), operations, 10.0).gpu
    assert [(device, peak.bytes) for device, peak in found.items()] == [(DEVICE, 600)]


def test_of_several_devices_an_allocators_number_names_none() -> None:
    """CUDA numbers devices by speed or by bus, and only those that a process may use."""
    operations = [operation("a", 10, 20, gpu={"cuda:0": told(400, 400), "cuda:1": told(300, 300)})]
    devices = {DEVICE: Peak.sampled(500, at=9.0), "GPU-2": Peak.sampled(5, at=9.0)}
    assert set(attributed(Peaks(gpu=devices), operations, 10.0).gpu) == {*devices, "cuda:0", "cuda:1"}


def test_a_device_that_only_an_allocator_knows_has_a_peak() -> None:
    operations = [operation("a", 10, 20, gpu={"mps": told(400, None)})]
    assert attributed(Peaks(), operations, 10.0).gpu["mps"].bytes == 400


def test_a_smaller_figure_changes_nothing() -> None:
    operations = [operation("a", 10, 20, gpu={DEVICE: told(400, 400)})]
    assert attributed(Peaks(gpu={DEVICE: Peak.sampled(500)}), operations, 10.0).gpu[DEVICE].bytes == 500


def test_a_span_shows_the_device_of_which_most_was_used() -> None:
    gpu = {"GPU-1": told(400, 400, start=10, end=20), "GPU-2": told(500, 900, start=30, end=None)}
    attributes = operation_attributes(operation("a", 10, 20, gpu=gpu))
    assert attributes["hw.id"] == "GPU-2"
    assert attributes["memwatch.gpu.memory.peak"] == 500
    assert attributes["memwatch.gpu.memory.start"] == 30
    assert "memwatch.gpu.memory.end" not in attributes
    assert "hw.id" not in operation_attributes(operation("b", 10, 20))


def test_allocators_raise_the_runs_part_where_the_driver_lists_processes() -> None:
    operations = [
        operation("a", 10, 20, gpu={DEVICE: told(400, 400)}),
        operation("b", 10, 20, gpu={"GPU-2": told(9, 9)}),
    ]
    peaks = Peaks(
        gpu={DEVICE: Peak.sampled(500), "GPU-2": Peak.sampled(500)}, gpu_tree={DEVICE: Peak.sampled(300)}
    )
    found = attributed(peaks, operations, 10.0)
    assert {device: peak.bytes for device, peak in found.gpu_of_run.items()} == {DEVICE: 400, "GPU-2": 500}
    assert found.gpu[DEVICE].bytes == 500

"""Peaks of operations from allocators' watermarks: the arithmetic on a stand-in, harmlessness on anything imported."""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.allocators import Allocators
from otel_memwatch.in_target.operations import recorder
from tests.support.standin_torch import UUID, Device, Torch

GPU = f"GPU-{UUID}"
MIB = 1024**2


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def only(figures: dict[str, Any] | None) -> dict[str, Any]:
    assert figures is not None
    assert list(figures) == [GPU]
    found: dict[str, Any] = figures[GPU]
    return found


def bounds(figures: dict[str, Any] | None) -> tuple[int, int | None]:
    found = only(figures)
    return found["low"], found["high"]


def test_a_peak_that_rose_is_exact(torch: Torch) -> None:
    here = Allocators(exact=False)
    torch.devices[0].take(10)
    here.opened(1)
    torch.devices[0].take(90)
    torch.devices[0].give(70)
    figures = only(here.closed(1))
    assert figures == {
        "allocator": "torch.cuda",
        "peak": 100,
        "low": 100,
        "high": 100,
        "certainty": "exact",
        "reserved_peak": 100,
        "start": 10,
        "end": 30,
        "ooms": 0,
        "retries": 0,
        "fragmentation": 70,
    }


def test_a_peak_below_the_lifetimes_is_an_interval(torch: Torch) -> None:
    here = Allocators(exact=False)
    torch.devices[0].take(100)
    torch.devices[0].give(100)
    here.opened(1)
    torch.devices[0].take(60)
    torch.devices[0].give(40)
    figures = only(here.closed(1))
    assert (figures["low"], figures["high"], figures["certainty"]) == (20, 100, "interval")


def test_reset_at_boundaries_makes_it_exact(torch: Torch) -> None:
    here = Allocators(exact=True)
    torch.devices[0].take(100)
    torch.devices[0].give(100)
    here.opened(1)
    torch.devices[0].take(60)
    torch.devices[0].give(40)
    assert bounds(here.closed(1)) == (60, 60)


def test_nested_operations_are_each_exact(torch: Torch) -> None:
    here, device = Allocators(exact=True), torch.devices[0]
    here.opened(1)
    device.take(200)
    device.give(200)
    here.opened(2)
    device.take(500)
    device.give(450)
    inner = here.closed(2)
    device.take(250)
    device.give(300)
    assert bounds(inner) == (500, 500)
    assert bounds(here.closed(1)) == (500, 500)


def test_overlapping_operations_are_each_exact(torch: Torch) -> None:
    here, device = Allocators(exact=True), torch.devices[0]
    here.opened(1)
    device.take(300)
    device.give(290)
    here.opened(2)
    device.take(50)
    first = here.closed(1)
    device.give(40)
    device.take(10)
    assert bounds(first) == (300, 300)
    assert bounds(here.closed(2)) == (60, 60)


Step = tuple[str, int]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 1000)),
            st.tuples(st.just("give"), st.integers(0, 1000)),
            st.tuples(st.just("open"), st.just(0)),
            st.tuples(st.just("close"), st.integers(0, 5)),
            st.tuples(st.just("reset"), st.just(0)),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_the_truth_lies_within_the_bounds(steps: list[Step], exact: bool) -> None:
    """Any mix of allocations and overlapping operations; the lower bound also where the program resets the watermark."""
    torch, true, result = Torch(), {}, []
    device, here = torch.devices[0], Allocators(exact)
    device.take(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        for number, (what, amount) in enumerate(steps):
            if what == "take":
                device.take(amount)
            elif what == "give":
                device.give(min(amount, device.current - 1))
            elif what == "reset":
                device.reset()
            elif what == "open":
                here.opened(number)
                true[number] = device.current
            elif true:
                key = sorted(true)[amount % len(true)]
                result.append((true.pop(key), only(here.closed(key))))
            true = {key: max(value, device.current) for key, value in true.items()}
    undisturbed = not any(what == "reset" for what, _ in steps)
    assert len(result) + len(true) == sum(what == "open" for what, _ in steps)
    for truth, figures in result:
        assert figures["low"] <= truth
        if undisturbed:
            assert figures["high"] >= truth
            assert not exact or figures["low"] == truth


def test_a_reset_by_the_program_is_noticed_when_the_watermark_fell(torch: Torch) -> None:
    here, device = Allocators(exact=False), torch.devices[0]
    device.take(100)
    here.opened(1)
    device.take(400)
    device.give(450)
    device.reset()
    assert bounds(here.closed(1)) == (100, None)


def test_an_operation_older_than_the_import_has_the_whole_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    here = Allocators(exact=False)
    here.opened(1)
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    made.devices[0].take(70)
    made.devices[0].give(70)
    assert bounds(here.closed(1)) == (70, 70)
    assert bounds(here.closed(999)) == (70, 70)


def test_resets_do_not_hide_what_an_older_operation_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    here, made = Allocators(exact=True), Torch()
    here.opened(1)
    monkeypatch.setitem(sys.modules, "torch", made)
    made.devices[0].take(70)
    made.devices[0].give(60)
    here.opened(2)
    assert bounds(here.closed(2)) == (10, 10)
    figures = only(here.closed(1))
    assert (figures["low"], figures["high"], figures["reserved_peak"]) == (70, 70, 70)


def test_the_public_statistics_serve_without_the_function_below(torch: Torch) -> None:
    del torch._C._cuda_memoryStats
    here = Allocators(exact=False)
    torch.devices[0].take(5)
    here.opened(1)
    assert bounds(here.closed(1)) == (5, 5)


def test_a_build_without_devices_is_asked_once(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    supported = SimpleNamespace(is_initialized=lambda: bool(asked.append(1)), _is_compiled=lambda: False)
    monkeypatch.setattr(torch, "xpu", supported, raising=False)
    here = Allocators(exact=False)
    torch.devices[0].take(5)
    for key in range(5):
        here.opened(key)
        here.closed(key)
    assert len(asked) == 1


def test_a_device_that_is_used_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Torch(devices=2)
    monkeypatch.setitem(sys.modules, "torch", made)
    here = Allocators(exact=False)
    made.devices[0].take(5)
    here.opened(1)
    made.devices[1].take(6)
    assert {device: known["peak"] for device, known in (here.closed(1) or {}).items()} == {
        GPU: 5,
        f"GPU-1{UUID[1:]}": 6,
    }


def test_devices_are_distinguished_and_unused_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Torch(devices=3)
    monkeypatch.setitem(sys.modules, "torch", made)
    here = Allocators(exact=True)
    here.opened(1)
    made.devices[1].take(5)
    made.devices[2].take(6)
    figures = here.closed(1)
    assert figures is not None
    peaks = {device: known["peak"] for device, known in figures.items()}
    assert peaks == {f"GPU-1{UUID[1:]}": 5, f"GPU-2{UUID[1:]}": 6}


def test_failed_and_repeated_allocations_are_counted(torch: Torch) -> None:
    here, device = Allocators(exact=False), torch.devices[0]
    device.take(1)
    device.ooms, device.retries = 3, 5
    here.opened(1)
    device.take(1)
    device.ooms, device.retries = 4, 7
    figures = only(here.closed(1))
    assert (figures["ooms"], figures["retries"]) == (1, 2)


def test_nothing_is_asked_of_a_torch_that_is_not_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Torch(initialized=False)
    monkeypatch.setitem(sys.modules, "torch", made)
    here = Allocators(exact=True)
    here.opened(1)
    assert here.closed(1) is None
    assert made.calls == []


def test_a_library_is_in_use_once_it_has_held_something(monkeypatch: pytest.MonkeyPatch) -> None:
    here, made = Allocators(exact=False), Torch(initialized=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not here.in_use()
    monkeypatch.setitem(sys.modules, "torch", made)
    assert not here.in_use()
    made.initialized = True
    assert not here.in_use()
    made.devices[0].take(70)
    made.devices[0].give(70)
    assert here.in_use()
    made.initialized = False
    assert here.in_use(), "that it was"


def test_what_a_library_raises_is_no_use(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: 1 / 0)
    assert not Allocators(exact=False).in_use()


def test_nothing_is_reset_unless_asked(torch: Torch) -> None:
    torch.devices[0].take(1)
    here = Allocators(exact=False)
    here.opened(1)
    here.closed(1)
    assert "reset" not in torch.calls


def test_what_a_library_raises_costs_certainty_only(torch: Torch) -> None:
    here, device = Allocators(exact=False), torch.devices[0]
    device.take(10)
    here.opened(1)
    device.take(90)
    device.give(50)
    device.broken = True
    assert bounds(here.closed(1)) == (10, None)


def test_an_operation_that_begins_without_an_answer_has_no_stale_figures(torch: Torch) -> None:
    here, device = Allocators(exact=False), torch.devices[0]
    device.take(900)
    here.opened(1)
    device.broken = True
    device.give(890)
    here.opened(2)
    device.broken = False
    assert bounds(here.closed(2)) == (10, None)
    assert bounds(here.closed(1)) == (900, None)


def test_amd_devices_keep_torchs_names(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.2")
    torch.devices[0].take(10)
    here = Allocators(exact=False)
    here.opened(1)
    assert list(here.closed(1) or {}) == ["cuda:0"]


def test_jax_is_asked_through_the_backends_it_has_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"bytes_in_use": 10, "peak_bytes_in_use": 30, "pool_bytes": 100, "peak_pool_bytes": 100}
    device = SimpleNamespace(id=0, local_hardware_id=0, memory_stats=lambda: dict(memory))
    bridge: Any = ModuleType("jax._src.xla_bridge")
    bridge._backends = {"cpu": None, "cuda": SimpleNamespace(local_devices=lambda: [device])}
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    here = Allocators(exact=True)
    here.opened(1)
    memory.update(bytes_in_use=20, peak_bytes_in_use=50)
    figures = (here.closed(1) or {})["cuda:0"]
    assert (figures["allocator"], figures["peak"], figures["certainty"], figures["ooms"]) == (
        "jax",
        50,
        "exact",
        None,
    )
    assert figures["fragmentation"] == 80


def test_jax_without_backends_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge: Any = ModuleType("jax._src.xla_bridge")
    bridge._backends = {}
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    here = Allocators(exact=True)
    here.opened(1)
    assert here.closed(1) is None


def test_tensorflow_is_asked_once_its_context_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"current": 5, "peak": 9}
    calls: list[str] = []

    def reset(device: str) -> None:
        calls.append(device)
        info["peak"] = info["current"]

    experimental = SimpleNamespace(get_memory_info=lambda device: dict(info), reset_memory_stats=reset)
    tensorflow: Any = ModuleType("tensorflow")
    tensorflow.config = SimpleNamespace(list_logical_devices=lambda kind: [1], experimental=experimental)
    context: Any = ModuleType("tensorflow.python.eager.context")
    context._context = SimpleNamespace(_initialized=False)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
    here = Allocators(exact=True)
    here.opened(1)
    assert here.closed(1) is None
    context._context._initialized = True
    here.opened(2)
    info.update(current=6, peak=7)
    assert (here.closed(2) or {})["GPU:0"]["peak"] == 7
    assert calls == ["GPU:0"] * 2


def test_cupy_on_a_thread_without_a_context_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy: Any = ModuleType("cupy")  # any attribute that is asked for raises
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("otel_memwatch.in_target.allocators.libraries._has_cuda_context", lambda: False)
    here = Allocators(exact=True)
    here.opened(1)
    assert here.closed(1) is None


def test_cupys_pool_gives_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SimpleNamespace(used_bytes=lambda: 10, total_bytes=lambda: 100)
    runtime = SimpleNamespace(
        getDevice=lambda: 0, getDeviceProperties=lambda index: {"uuid": bytes(range(16))}
    )
    cupy: Any = ModuleType("cupy")
    cupy.cuda, cupy.get_default_memory_pool = SimpleNamespace(runtime=runtime), lambda: pool
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("otel_memwatch.in_target.allocators.libraries._has_cuda_context", lambda: True)
    here = Allocators(exact=True)
    here.opened(1)
    pool.used_bytes = lambda: 70
    figures = here.closed(1)
    assert figures is not None
    ((device, known),) = figures.items()
    assert device == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f cupy"
    assert (known["low"], known["high"], known["certainty"]) == (70, None, "interval")


def test_threads_do_not_disturb_each_other(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    here, device = recorder._GpuAllocators(), torch.devices[0]
    monkeypatch.setattr(allocators, "_here", Allocators(exact=True))
    device.take(1)
    failures: list[object] = []

    def work(first: int) -> None:
        for key in range(first, first + 300):
            here.opened(key)
            figures = here.closed(key)
            if not figures or figures[GPU]["low"] != 1:
                failures.append(figures)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_resets_can_be_asked_for_while_the_program_runs(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(allocators.VARIABLE, raising=False)
    torch.devices[0].take(100)
    torch.devices[0].give(90)
    monkeypatch.setattr(allocators, "_here", Allocators(exact=False))
    allocators.be_exact(wanted=True)
    assert os.environ[allocators.VARIABLE] == "1", "programs started from here do it too"
    allocators.here().opened(1)
    torch.devices[0].take(5)
    torch.devices[0].give(5)
    assert bounds(allocators.here().closed(1)) == (15, 15)
    allocators.be_exact(wanted=False)
    assert allocators.VARIABLE not in os.environ
    torch.calls.clear()
    allocators.here().opened(2)
    allocators.here().closed(2)
    assert "reset" not in torch.calls


def test_the_stand_in_keeps_watermarks_as_torch_does() -> None:
    device = Device()
    device.take(10)
    device.give(4)
    assert (device.current, device.peak, device.reserved) == (6, 10, 10)
    device.reset()
    assert (device.peak, device.reserved_peak) == (6, 10)

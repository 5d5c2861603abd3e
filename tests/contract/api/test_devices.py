"""The GPUs of a program, in Python: real answers, an empty list, or an error that says what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import otel_memwatch
from otel_memwatch.api import devices
from otel_memwatch.api.devices import GPUMemory, best_gpu, gpus
from otel_memwatch.errors import Unavailable
from tests.support import nvml
from tests.support.drm_tree import AMD, INTEL, RADEON, card
from tests.support.nvml import FIRST, GIB, SECOND, Machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    nvml.load()
    made = Machine(tmp_path / "script")
    monkeypatch.setenv(nvml.VARIABLE, str(made.script))
    return made


def test_memory_is_bytes_of_this_moment(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, used=5 * GIB, reserved=GIB)
    (gpu,) = gpus({}, tmp_path)
    assert (gpu.ordinal, gpu.id, gpu.name) == (0, FIRST, "NVIDIA H100 80GB HBM3")
    assert gpu.memory == GPUMemory(total=80 * GIB, free=74 * GIB, used=5 * GIB)
    machine.card(0, used=6 * GIB)
    (gpu,) = gpus({}, tmp_path)
    assert gpu.memory is not None
    assert gpu.memory.used == 6 * GIB


def test_the_order_is_cudas(machine: Machine, tmp_path: Path) -> None:
    machine.card(0)
    machine.card(1)
    assert [gpu.id for gpu in gpus({"CUDA_VISIBLE_DEVICES": "1,0"}, tmp_path)] == [SECOND, FIRST]
    assert gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []


def test_the_best_has_most_free(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, used=5 * GIB)
    machine.card(1, used=1 * GIB)
    best = best_gpu({}, tmp_path)
    assert best is not None
    assert best.id == SECOND
    assert best_gpu({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) is None


def test_a_device_that_does_not_tell_has_no_figures_and_is_not_best(machine: Machine, tmp_path: Path) -> None:
    machine.card(0)
    machine.card(1, used=79 * GIB)
    machine.also("fail nvmlDeviceGetMemoryInfo_v2 15 0")
    assert [gpu.memory is None for gpu in gpus({}, tmp_path)] == [True, False]
    best = best_gpu({}, tmp_path)
    assert best is not None
    assert best.id == SECOND


def test_a_broken_driver_says_what_helps(machine: Machine, tmp_path: Path) -> None:
    machine.also("init 18")
    with pytest.raises(Unavailable, match="reboot"):
        gpus({}, tmp_path)


def test_a_driver_that_hangs_does_not_hang_the_caller(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "ANSWER", 0.2)
    machine.also("hang nvmlInitWithFlags")
    with pytest.raises(Unavailable, match="did not answer"):
        gpus({}, tmp_path)
    machine.without("hang")


def test_open_drivers_follow(machine: Machine, tmp_path: Path) -> None:
    machine.card(0)
    card(tmp_path, 0, INTEL, "i915", "0x8086")
    card(tmp_path, 1, AMD, "amdgpu", "0x1002", RADEON)
    found = gpus({}, tmp_path)
    assert [(gpu.ordinal, gpu.id) for gpu in found] == [(0, FIRST), (1, INTEL), (2, AMD)]
    assert found[1].memory is None
    assert found[2].memory == GPUMemory(17163091968, 17163091968 - 1073741824, 1073741824)


def test_no_driver_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_memwatch.runtime.gpu_presence.LIBRARY", "libnvidia-ml-that-is-not.so.1")
    assert gpus({}, tmp_path) == []
    assert best_gpu({}, tmp_path) is None


def test_the_names_are_the_packages() -> None:
    assert otel_memwatch.gpus is gpus
    assert otel_memwatch.best_gpu is best_gpu
    assert otel_memwatch.GPUMemory is GPUMemory

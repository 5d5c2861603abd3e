"""GPUs for people: which there are for this program, how much of each is free, which has most.

Asks the drivers when called, nothing before. A device that does not answer has no figures; there is never a zero for
an error.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources.gpu_drm.cards import figures, find_cards
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import HANGS_HINT, NO_DRIVER, open_driver
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.readings import memory
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.visible import visible
from otel_memwatch.runtime.polling import answered
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER = 10.0
"""Seconds after which a driver that does not answer counts as hanging."""


class GPUMemory(NamedTuple):
    """Memory of a GPU in bytes. What driver and firmware reserve is neither free nor used."""

    total: int
    free: int
    used: int


class GPU(NamedTuple):
    """One GPU that this program may use."""

    ordinal: int
    """Place in the list; CUDA's number of an NVIDIA device, where CUDA's order is known."""
    id: str
    """UUID of an NVIDIA device, else its PCI address."""
    name: str
    """Model."""
    memory: GPUMemory | None
    """`None`: the device does not report it, now or ever."""


def gpus(environment: Mapping[str, str] | None = None, sys: Path = Path("/sys")) -> list[GPU]:
    """The GPUs that a program with this environment may use, with their memory of this moment.

    NVIDIA devices come first, in CUDA's order as `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` make it; then those
    of open drivers. No GPU gives an empty list. The driver is opened for the call: milliseconds, or seconds where
    no daemon keeps its cards awake.

    Args:
        environment: variables of the program; by default those of this one.
        sys: where /sys is.

    Raises:
        Unavailable: there is a driver, but it cannot be used or does not answer; the hint says what helps.

    """
    environment = os.environ if environment is None else environment
    found = [*_nvidia(environment), *_drm(sys)]
    return [GPU(ordinal, *device) for ordinal, device in enumerate(found)]


def best_gpu(environment: Mapping[str, str] | None = None, sys: Path = Path("/sys")) -> GPU | None:
    """The one with most free memory, the first of equals; `None` without a GPU that reports its memory. Raises as `gpus` does."""
    reporting = [gpu for gpu in gpus(environment, sys) if gpu.memory is not None]
    return max(reporting, key=lambda gpu: gpu.memory.free if gpu.memory else 0, default=None)


_Found = tuple[str, str, "GPUMemory | None"]


def _nvidia(environment: Mapping[str, str]) -> list[_Found]:
    try:
        return answered(lambda: _ask_nvidia(environment), ANSWER, "The NVIDIA driver", HANGS_HINT)
    except Unavailable as reason:
        if reason.message == NO_DRIVER:
            return []
        raise


def _ask_nvidia(environment: Mapping[str, str]) -> list[_Found]:
    driver = open_driver()
    try:
        devices = {device.identity: device for device in driver.devices()}
        found = []
        for identity in visible(environment, list(devices)).devices:
            try:
                answer = memory(driver, devices[identity])
            except driver.nvml.NVMLError:
                answer = None
            total, used, free = answer[:3] if answer else (None, None, None)
            known = (
                None
                if total is None or used is None or free is None
                else GPUMemory(int(total), int(free), int(used))
            )
            found.append((identity.uuid, identity.name, known))
        return found
    finally:
        driver.close()


def _drm(sys: Path) -> list[_Found]:
    found: list[_Found] = []
    for card in find_cards(sys):
        values = {figure.metric: figure.read() for figure in figures(card) if card.awake()}
        total, used = values.get(catalog.HW_GPU_MEMORY_LIMIT), values.get(catalog.HW_GPU_MEMORY_USAGE)
        known = None if total is None or used is None else GPUMemory(int(total), int(total - used), int(used))
        found.append((card.id, card.name, known))
    return found

"""GPUs available to this program, with their memory.

The drivers are queried only when a function is called. A device that does not answer has no figures; an error never
becomes a zero.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources.gpu_drm.cards import figures, find_cards
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import HANGS_HINT, open_driver
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.readings import memory
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.visible import visible
from otel_memwatch.runtime.gpu_presence import NO_DRIVER
from otel_memwatch.runtime.polling import answered
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER = 10.0
"""Seconds after which a driver that does not answer counts as hanging."""


class GPUMemory(NamedTuple):
    """Memory of a GPU in bytes. Memory reserved by driver and firmware is neither free nor used."""

    total: int
    free: int
    used: int


class GPU(NamedTuple):
    """One GPU that this program may use."""

    ordinal: int
    """Position in the list. For an NVIDIA device this is CUDA's number, if CUDA's order is known."""
    id: str
    """UUID of an NVIDIA device; PCI address of any other device."""
    name: str
    """Model."""
    memory: GPUMemory | None
    """`None` if the device does not report it."""


def gpus(environment: Mapping[str, str] | None = None, sys: Path = Path("/sys")) -> list[GPU]:
    """Return the GPUs that a program with this environment may use, with their current memory.

    NVIDIA devices come first, in CUDA's order according to `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`. Devices of
    open drivers follow. Without a GPU, the list is empty. Each call opens the driver, which takes milliseconds, or
    seconds if no daemon keeps the cards awake.

    Args:
        environment: environment variables of the program; by default those of this process.
        sys: path of the sysfs file system.

    Raises:
        Unavailable: a driver exists, but cannot be used or does not answer; the hint names the remedy.

    """
    given = os.environ if environment is None else environment
    try:
        found = answered(lambda: _ask_nvidia(given), ANSWER, "The NVIDIA driver", HANGS_HINT)
    except Unavailable as reason:
        if reason.message != NO_DRIVER:
            raise
        found = []
    for card in find_cards(sys):
        values = {figure.metric: figure.read() for figure in figures(card) if card.awake()}
        total, used = values.get(catalog.HW_GPU_MEMORY_LIMIT), values.get(catalog.HW_GPU_MEMORY_USAGE)
        known = None if total is None or used is None else GPUMemory(int(total), int(total - used), int(used))
        found.append((card.id, card.name, known))
    return [GPU(ordinal, *device) for ordinal, device in enumerate(found)]


def best_gpu(environment: Mapping[str, str] | None = None, sys: Path = Path("/sys")) -> GPU | None:
    """Return the GPU with the most free memory, or the first of several equal ones.

    `None` if no GPU reports its memory. Raises the errors of `gpus`.
    """
    reporting = [gpu for gpu in gpus(environment, sys) if gpu.memory is not None]
    return max(reporting, key=lambda gpu: gpu.memory.free if gpu.memory else 0, default=None)


_Found = tuple[str, str, "GPUMemory | None"]


def _ask_nvidia(environment: Mapping[str, str]) -> list[_Found]:
    """Ask the driver for its devices, in the order in which CUDA numbers them."""
    driver = open_driver()
    try:
        devices = {device.identity: device for device in driver.devices()}
        found = []
        for identity in visible(environment, list(devices)).devices:
            try:
                answer = memory(driver, devices[identity])
            except driver.nvml.NVMLError:
                answer = None
            known = None if answer is None else GPUMemory(answer.total, answer.free, answer.used)
            found.append((identity.uuid, identity.name, known))
        return found
    finally:
        driver.close()

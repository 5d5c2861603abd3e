"""Memory of GPUs in MB of 2**20 bytes, from the driver's figures for the whole device.

Device numbers are CUDA's in this program and respect `CUDA_VISIBLE_DEVICES`.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.api.devices import GPUMemory as DeviceMemory


class GPUMemory(NamedTuple):
    """Memory of one device in MB; all zero without a device."""

    total: int
    free: int
    used: int


_NONE = GPUMemory(0, 0, 0)
_warned: set[str] = set()
"""Reasons for which a warning was already given."""


def cuda() -> Any | None:
    """Return `torch.cuda` if the program has imported PyTorch and has a usable GPU. Imports nothing."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "cuda", None)
    return module if module is not None and module.is_available() else None


def b2mb(num: float) -> int:
    """Return bytes as whole MB, rounded towards zero."""
    return int(num / 2**20)


def preload_pytorch() -> None:
    """Make PyTorch create its CUDA context now, to exclude its half gigabyte from later figures."""
    module = cuda()
    if module is not None:
        sys.modules["torch"].ones((1, 1)).cuda()


class _Device(NamedTuple):
    number: int
    id: str
    memory: DeviceMemory
    """Bytes."""


def _devices() -> list[_Device]:
    """Return the devices of this program with known memory. If a driver fails, return none and warn once."""
    from otel_memwatch.api.devices import gpus
    from otel_memwatch.errors import Unavailable

    try:
        return [
            _Device(number, gpu.id, gpu.memory) for number, gpu in enumerate(gpus()) if gpu.memory is not None
        ]
    except Unavailable as reason:
        if str(reason) not in _warned:
            _warned.add(str(reason))
            warnings.warn(f"GPU memory is given as 0: {reason}", stacklevel=4)
        return []


def current_device() -> int:
    """Return the number of the calling thread's device; 0 if CUDA is not in use."""
    module = cuda()
    return int(module.current_device()) if module is not None and module.is_initialized() else 0


def device_memory(number: int) -> tuple[int, int, int] | None:
    """Return total, free and used bytes of the device with a CUDA number; `None` if there is none."""
    devices = _devices()
    device = next((device for device in devices if device.number == number), None)
    # If CUDA is in use, its UUID identifies the device.
    module = cuda()
    if module is not None and module.is_initialized() and 0 <= number < module.device_count():
        uuid = getattr(module.get_device_properties(number), "uuid", None)
        named = [device for device in devices if uuid is not None and device.id.endswith(str(uuid))]
        device = named[0] if named else device
    return None if device is None else (device.memory.total, device.memory.free, device.memory.used)


def gpu_mem_get(id: int | None = None) -> GPUMemory:  # noqa: A002 - callers use this keyword
    """Return the memory of device `id` (default: the current one) in MB; zeros without a GPU or for an unknown number."""
    figures = device_memory(current_device() if id is None else int(id))
    return _NONE if figures is None else GPUMemory(*map(b2mb, figures))


def gpu_mem_get_all() -> list[GPUMemory]:
    """Return the memory of every device of this program in MB; an empty list without a GPU."""
    return [GPUMemory(*map(b2mb, device.memory)) for device in _devices()]


def gpu_mem_get_free() -> int:
    """Return the free MB of the current device."""
    return gpu_mem_get().free


def gpu_mem_get_used() -> int:
    """Return the used MB of the current device."""
    return gpu_mem_get().used


def _empty_cache() -> None:
    module = cuda()
    if module is not None:
        module.empty_cache()


def gpu_mem_get_free_no_cache() -> int:
    """Empty PyTorch's cache and return the free MB of the current device."""
    _empty_cache()
    return gpu_mem_get().free


def gpu_mem_get_used_no_cache() -> int:
    """Empty PyTorch's cache and return the used MB of the current device."""
    _empty_cache()
    return gpu_mem_get().used


def gpu_mem_get_used_fast(gpu_handle: Any) -> int:
    """Return the used MB of the device of a `pynvml` handle."""
    import pynvml  # type: ignore[import-untyped]

    return b2mb(pynvml.nvmlDeviceGetMemoryInfo(gpu_handle).used)


def gpu_with_max_free_mem() -> tuple[int | None, int]:
    """Return number and free MB of the device with most free memory, the first of equals; `(None, 0)` without a GPU."""
    best = max(_devices(), key=lambda device: device.memory.free, default=None)
    return (None, 0) if best is None else (best.number, b2mb(best.memory.free))

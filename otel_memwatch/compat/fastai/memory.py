"""Memory of GPUs in MB of 2**20 bytes, as the driver has it for the whole device.

A device's number is the one that CUDA gives it in this program, so that `CUDA_VISIBLE_DEVICES` is respected.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.api.devices import GPUMemory as DeviceMemory


class GPUMemory(NamedTuple):
    """MB of one device; all zero where there is none."""

    total: int
    free: int
    used: int


_NONE = GPUMemory(0, 0, 0)
_warned: set[str] = set()
"""Reasons that a warning has been given for."""


def cuda() -> Any | None:
    """`torch.cuda` where the program has imported PyTorch and there is a GPU that it can use; nothing is imported."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "cuda", None)
    return module if module is not None and module.is_available() else None


def b2mb(num: float) -> int:
    """Bytes as whole MB, rounded towards zero."""
    return int(num / 2**20)


def preload_pytorch() -> None:
    """Makes PyTorch create its CUDA context now, so that its half gigabyte is not counted later."""
    module = cuda()
    if module is not None:
        sys.modules["torch"].ones((1, 1)).cuda()


class _Device(NamedTuple):
    number: int
    id: str
    memory: DeviceMemory
    """Bytes."""


def _devices() -> list[_Device]:
    """The devices of this program whose memory is known; none where a driver is in trouble, which is warned of once."""
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
    """Number of the calling thread's device; 0 where CUDA is not in use."""
    module = cuda()
    return int(module.current_device()) if module is not None and module.is_initialized() else 0


def _device(number: int) -> _Device | None:
    """The device with a number of CUDA's. CUDA's own word for its UUID decides, where CUDA is in use."""
    devices = _devices()
    module = cuda()
    if module is not None and module.is_initialized() and 0 <= number < module.device_count():
        uuid = getattr(module.get_device_properties(number), "uuid", None)
        named = [device for device in devices if uuid is not None and device.id.endswith(str(uuid))]
        if named:
            return named[0]
    return next((device for device in devices if device.number == number), None)


def device_memory(number: int) -> tuple[int, int, int] | None:
    """Total, free and used bytes of a device; `None` where there is none of that number."""
    device = _device(number)
    return None if device is None else (device.memory.total, device.memory.free, device.memory.used)


def gpu_mem_get(id: int | None = None) -> GPUMemory:  # noqa: A002 - the keyword that callers use
    """MB of device `id`, by default the current one; zeros without a GPU, or for a number that is none."""
    figures = device_memory(current_device() if id is None else int(id))
    return _NONE if figures is None else GPUMemory(*map(b2mb, figures))


def gpu_mem_get_all() -> list[GPUMemory]:
    """MB of every device of this program; an empty list without a GPU."""
    return [GPUMemory(*map(b2mb, device.memory)) for device in _devices()]


def gpu_mem_get_free() -> int:
    """Free MB of the current device."""
    return gpu_mem_get().free


def gpu_mem_get_used() -> int:
    """Used MB of the current device."""
    return gpu_mem_get().used


def _empty_cache() -> None:
    module = cuda()
    if module is not None:
        module.empty_cache()


def gpu_mem_get_free_no_cache() -> int:
    """Free MB of the current device, after PyTorch has given back what it only keeps for later."""
    _empty_cache()
    return gpu_mem_get().free


def gpu_mem_get_used_no_cache() -> int:
    """Used MB of the current device, after PyTorch has given back what it only keeps for later."""
    _empty_cache()
    return gpu_mem_get().used


def gpu_mem_get_used_fast(gpu_handle: Any) -> int:
    """Used MB of the device of a `pynvml` handle."""
    import pynvml  # type: ignore[import-untyped]

    return b2mb(pynvml.nvmlDeviceGetMemoryInfo(gpu_handle).used)


def gpu_with_max_free_mem() -> tuple[int | None, int]:
    """Number and free MB of the device with most free memory, the first of equals; `(None, 0)` without a GPU."""
    best = max(_devices(), key=lambda device: device.memory.free, default=None)
    return (None, 0) if best is None else (best.number, b2mb(best.memory.free))

"""Readers of GPU libraries that the program has imported and initialised, found only through `sys.modules`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.in_target.allocators.bounds import AllocatorReading

if TYPE_CHECKING:
    from collections.abc import Callable


class Library(NamedTuple):
    """One GPU library. If one of its functions raises, its readings are omitted."""

    name: str
    """Name in its readings: "torch.cuda", "jax" ..."""
    module: str
    """Its Python module. The library is read only after the program has imported it."""
    read: Callable[[], dict[str, AllocatorReading]]
    """Function that returns readings by device; empty if the library is not in use."""
    reset: Callable[[dict[str, AllocatorReading]], None] | None
    """Function that resets the high-water marks of these devices to current use; `None` if not supported."""


_names: dict[tuple[str, int], str] = {}
"""Names of devices by library and index."""


def _torch(kind: str) -> Library:
    """Return PyTorch's caching allocator of `torch.cuda` (also for ROCm) or `torch.xpu`."""

    def module() -> Any:
        found = getattr(sys.modules.get("torch"), kind, None)
        return found if found is not None and found.is_initialized() else None

    def used(devices: Any) -> list[int]:
        """Return the devices that have a context. The others are not touched."""
        internals = sys.modules["torch"]._C  # noqa: SLF001 - every public function would create a context
        has_context = getattr(internals, f"_{kind}_hasPrimaryContext", None)
        return [i for i in range(devices.device_count()) if has_context is None or has_context(i)]

    def read() -> dict[str, AllocatorReading]:
        devices = module()
        if devices is None:
            return {}
        readings = {}
        for index in used(devices):
            stats = devices.memory_stats_as_nested_dict(index)
            held = stats.get("reserved_bytes", {}).get("all", {})
            if not held.get("peak"):
                continue
            allocated = stats["allocated_bytes"]["all"]
            readings[_torch_device(kind, devices, index)] = AllocatorReading(
                f"torch.{kind}",
                allocated["current"],
                allocated["peak"],
                held["current"],
                held["peak"],
                stats.get("num_ooms"),
                stats.get("num_alloc_retries"),
            )
        return readings

    def reset(readings: dict[str, AllocatorReading]) -> None:
        devices = module()
        for index in used(devices):
            if _torch_device(kind, devices, index) in readings:
                devices.reset_peak_memory_stats(index)

    return Library(f"torch.{kind}", "torch", read, reset)


def _torch_device(kind: str, devices: Any, index: int) -> str:
    """Return the UUID of an NVIDIA device in the driver's spelling; for other devices "cuda:0", "xpu:0"."""
    key = f"torch.{kind}", index
    if key not in _names:
        uuid = None
        if kind == "cuda" and not getattr(sys.modules["torch"].version, "hip", None):
            uuid = getattr(devices.get_device_properties(index), "uuid", None)
        _names[key] = _nvidia(str(uuid)) if uuid else f"{kind}:{index}"
    return _names[key]


def _nvidia(uuid: str) -> str:
    """Return a UUID with its prefix, which CUDA omits. `CUDA_VISIBLE_DEVICES` shows whether it is a MIG instance."""
    kind = "MIG" if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-") else "GPU"
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"{kind}-{uuid}"


def _read_mps() -> dict[str, AllocatorReading]:
    """Read PyTorch on Apple GPUs: memory in use, no high-water mark."""
    torch = sys.modules["torch"]
    if not torch.backends.mps.is_available():
        return {}
    current, held = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    return {"mps": AllocatorReading("torch.mps", current, None, held, None)} if held else {}


def _read_jax() -> dict[str, AllocatorReading]:
    """Read JAX's open backends. Its private list is used, because public functions would open backends."""
    backends = getattr(sys.modules["jax._src.xla_bridge"], "_backends", None) or {}
    readings = {}
    for platform, client in list(backends.items()):
        if platform == "cpu":
            continue
        for device in client.local_devices():
            stats = device.memory_stats() or {}
            if "bytes_in_use" in stats:
                index = getattr(device, "local_hardware_id", None)
                readings[f"{platform}:{device.id if index is None else index}"] = AllocatorReading(
                    "jax",
                    stats["bytes_in_use"],
                    stats.get("peak_bytes_in_use"),
                    stats.get("pool_bytes"),
                    stats.get("peak_pool_bytes"),
                )
    return readings


def _read_tensorflow() -> dict[str, AllocatorReading]:
    """Read TensorFlow's GPUs if its context is initialised; listing them would initialise it."""
    tensorflow = sys.modules.get("tensorflow")
    context = getattr(sys.modules["tensorflow.python.eager.context"], "_context", None)
    if tensorflow is None or not getattr(context, "_initialized", False):
        return {}
    readings = {}
    for index, _ in enumerate(tensorflow.config.list_logical_devices("GPU")):
        info = tensorflow.config.experimental.get_memory_info(f"GPU:{index}")
        readings[f"GPU:{index}"] = AllocatorReading("tensorflow", info["current"], info["peak"])
    return readings


def _reset_tensorflow(readings: dict[str, AllocatorReading]) -> None:
    for device in readings:
        sys.modules["tensorflow"].config.experimental.reset_memory_stats(device)


def _read_cupy() -> dict[str, AllocatorReading]:
    """Read CuPy's default pool on the calling thread's device: memory in use, no high-water mark.

    Reads only on a thread with a CUDA context, because any call to the pool would initialise CUDA otherwise.
    """
    cupy = sys.modules["cupy"]
    if not _has_cuda_context():
        return {}
    index = cupy.cuda.runtime.getDevice()
    pool = cupy.get_default_memory_pool()
    used, held = int(pool.used_bytes()), int(pool.total_bytes())
    key = "cupy", index
    if key not in _names:
        if not held:
            return {}
        uuid = cupy.cuda.runtime.getDeviceProperties(index).get("uuid", b"")
        digits = uuid.hex()
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        _names[key] = _nvidia(dashed) if len(uuid) == 16 else f"cuda:{index}"
    return {f"{_names[key]} cupy": AllocatorReading("cupy", used, None, held, None)}


def _has_cuda_context() -> bool:
    """Return whether this thread has a CUDA context. Calls CUDA's library only if the program has loaded it."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0))
    except OSError:
        return False
    context = ctypes.c_void_p()
    return cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and bool(context.value)


LIBRARIES = (
    Library("cupy", "cupy", _read_cupy, None),
    Library("jax", "jax._src.xla_bridge", _read_jax, None),
    _torch("cuda"),
    _torch("xpu"),
    *((Library("torch.mps", "torch", _read_mps, None),) if sys.platform == "darwin" else ()),
    Library("tensorflow", "tensorflow.python.eager.context", _read_tensorflow, _reset_tensorflow),
)
"""All supported libraries."""

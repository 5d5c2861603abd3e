"""Readers of GPU libraries that the program has imported and initialised, found only through `sys.modules`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.in_target.allocators.bounds import Reading


class Library(NamedTuple):
    """One GPU library. If one of its functions raises, its readings are omitted."""

    name: str
    """Name in its readings: "torch.cuda", "jax" ..."""
    module: str
    """Its Python module. The library is read only after the program has imported it."""
    read: Callable[[], dict[str, Reading] | None]
    """Function that returns readings by device; empty if the library is not in use, `None` if it can never be."""
    reset: Callable[[dict[str, Reading]], None] | None = None
    """Function that resets the high-water marks of these devices to current use; `None` if not supported."""


class _Torch:
    """PyTorch's caching allocator of `torch.cuda` (also for ROCm) or `torch.xpu`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._devices: Any = None
        """Module of the devices; `None` before the program initialises it."""
        self._statistics: Any = None
        self._used: dict[str, int] = {}
        """Index of each device that has held memory, by name."""
        self._unused: list[int] = []

    def read(self) -> dict[str, Reading] | None:
        """Return readings of all devices that have held memory; `None` if PyTorch was built without their support."""
        if self._devices is None:
            devices = getattr(sys.modules.get("torch"), self._kind, None)
            if devices is None:
                return {}
            if not devices.is_initialized():
                supports = getattr(devices, "_is_compiled", None)
                return {} if supports is None or supports() else None
            self._begin(devices)
        if self._unused:
            self._find_used()
        readings: dict[str, Reading] = {}
        for device, index in self._used.items():
            found = self._statistics(index)
            used, held = found["allocated_bytes"]["all"], found["reserved_bytes"]["all"]
            readings[device] = (
                used["current"],
                used["peak"],
                held["current"],
                held["peak"],
                found.get("num_ooms"),
                found.get("num_alloc_retries"),
            )
        return readings

    def _begin(self, devices: Any) -> None:
        # The public function only checks its argument and calls this one.
        internals = sys.modules["torch"]._C  # noqa: SLF001 - as above
        direct = getattr(internals, f"_{self._kind}_memoryStats", None)
        self._statistics = direct or devices.memory_stats_as_nested_dict
        self._unused = list(range(devices.device_count()))
        self._devices = devices

    def _find_used(self) -> None:
        """Find devices that now hold memory. Those without a context are not touched."""
        internals = sys.modules["torch"]._C  # noqa: SLF001 - every public function would create a context
        has_context = getattr(internals, f"_{self._kind}_hasPrimaryContext", None)
        for index in tuple(self._unused):
            if has_context is None or has_context(index):
                held = self._statistics(index).get("reserved_bytes", {}).get("all", {})
                if held.get("peak"):
                    self._used[self._name(index)] = index
                    self._unused.remove(index)

    def _name(self, index: int) -> str:
        """Return the UUID of an NVIDIA device in the driver's spelling; for other devices "cuda:0", "xpu:0"."""
        uuid = None
        if self._kind == "cuda" and not getattr(sys.modules["torch"].version, "hip", None):
            uuid = getattr(self._devices.get_device_properties(index), "uuid", None)
        return _nvidia(str(uuid)) if uuid else f"{self._kind}:{index}"

    def reset(self, readings: dict[str, Reading]) -> None:
        """Reset the high-water marks of these devices."""
        for device in readings:
            self._devices.reset_peak_memory_stats(self._used[device])


def _torch(kind: str) -> Library:
    reader = _Torch(kind)
    return Library(f"torch.{kind}", "torch", reader.read, reader.reset)


def _nvidia(uuid: str) -> str:
    """Return a UUID with its prefix, which CUDA omits. `CUDA_VISIBLE_DEVICES` shows whether it is a MIG instance."""
    kind = "MIG" if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-") else "GPU"
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"{kind}-{uuid}"


def _read_mps() -> dict[str, Reading]:
    """Read PyTorch on Apple GPUs: memory in use, no high-water mark."""
    torch = sys.modules["torch"]
    if not torch.backends.mps.is_available():
        return {}
    current, held = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    return {"mps": (current, None, held, None, None, None)} if held else {}


def _read_jax() -> dict[str, Reading]:
    """Read JAX's open backends. Its private list is used, because public functions would open backends."""
    backends = getattr(sys.modules["jax._src.xla_bridge"], "_backends", None) or {}
    readings: dict[str, Reading] = {}
    for platform, client in list(backends.items()):
        if platform == "cpu":
            continue
        for device in client.local_devices():
            stats = device.memory_stats() or {}
            if "bytes_in_use" in stats:
                index = getattr(device, "local_hardware_id", None)
                readings[f"{platform}:{device.id if index is None else index}"] = (
                    stats["bytes_in_use"],
                    stats.get("peak_bytes_in_use"),
                    stats.get("pool_bytes"),
                    stats.get("peak_pool_bytes"),
                    None,
                    None,
                )
    return readings


def _read_tensorflow() -> dict[str, Reading]:
    """Read TensorFlow's GPUs if its context is initialised; listing them would initialise it."""
    tensorflow = sys.modules.get("tensorflow")
    context = getattr(sys.modules["tensorflow.python.eager.context"], "_context", None)
    if tensorflow is None or not getattr(context, "_initialized", False):
        return {}
    readings: dict[str, Reading] = {}
    for index, _ in enumerate(tensorflow.config.list_logical_devices("GPU")):
        info = tensorflow.config.experimental.get_memory_info(f"GPU:{index}")
        readings[f"GPU:{index}"] = info["current"], info["peak"], None, None, None, None
    return readings


def _reset_tensorflow(readings: dict[str, Reading]) -> None:
    for device in readings:
        sys.modules["tensorflow"].config.experimental.reset_memory_stats(device)


_pools: dict[int, str] = {}
"""Names of CuPy's devices by index."""


def _read_cupy() -> dict[str, Reading]:
    """Read CuPy's default pool on the calling thread's device: memory in use, no high-water mark.

    Reads only on a thread with a CUDA context, because any call to the pool would initialise CUDA otherwise.
    """
    cupy = sys.modules["cupy"]
    if not _has_cuda_context():
        return {}
    index = cupy.cuda.runtime.getDevice()
    pool = cupy.get_default_memory_pool()
    used, held = int(pool.used_bytes()), int(pool.total_bytes())
    if index not in _pools:
        if not held:
            return {}
        uuid = cupy.cuda.runtime.getDeviceProperties(index).get("uuid", b"")
        digits = uuid.hex()
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        _pools[index] = _nvidia(dashed) if len(uuid) == 16 else f"cuda:{index}"
    return {f"{_pools[index]} cupy": (used, None, held, None, None, None)}


def _has_cuda_context() -> bool:
    """Return whether this thread has a CUDA context. Calls CUDA's library only if the program has loaded it."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0))
    except OSError:
        return False
    context = ctypes.c_void_p()
    return cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and bool(context.value)


def supported_libraries() -> list[Library]:
    """Return readers of all supported libraries. They keep what they have found in this process."""
    found = [
        Library("cupy", "cupy", _read_cupy),
        Library("jax", "jax._src.xla_bridge", _read_jax),
        _torch("cuda"),
        _torch("xpu"),
        Library("tensorflow", "tensorflow.python.eager.context", _read_tensorflow, _reset_tensorflow),
    ]
    return [*found, Library("torch.mps", "torch", _read_mps)] if sys.platform == "darwin" else found

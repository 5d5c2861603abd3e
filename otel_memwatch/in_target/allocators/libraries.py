"""How each GPU library is asked, if the program has imported and initialised it: looked up in `sys.modules` only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.in_target.allocators.bounds import AllocatorReading

if TYPE_CHECKING:
    from collections.abc import Callable


class Library(NamedTuple):
    """One GPU library. What its functions raise is the library's trouble: it is left out then."""

    name: str
    """As in its readings: "torch.cuda", "jax" ..."""
    module: str
    """Its Python module: while the program has not imported that, there is nothing to ask."""
    read: Callable[[], dict[str, AllocatorReading]]
    """Readings by device; nothing where the library is not in use."""
    reset: Callable[[dict[str, AllocatorReading]], None] | None
    """Sets the watermarks of these devices to what is in use; `None`: the library cannot."""


_names: dict[tuple[str, int], str] = {}
"""Names of devices by library and index."""


def _torch(kind: str) -> Library:
    """PyTorch's caching allocator of `torch.cuda` (ROCm too) or `torch.xpu`."""

    def module() -> Any:
        found = getattr(sys.modules.get("torch"), kind, None)
        return found if found is not None and found.is_initialized() else None

    def used(devices: Any) -> list[int]:
        """Devices that have a context: the others are not touched."""
        internals = sys.modules["torch"]._C  # noqa: SLF001 - no public function tells without making a context
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
    """UUID of an NVIDIA device, as its driver spells it; else "cuda:0", "xpu:0"."""
    key = f"torch.{kind}", index
    if key not in _names:
        uuid = None
        if kind == "cuda" and not getattr(sys.modules["torch"].version, "hip", None):
            uuid = getattr(devices.get_device_properties(index), "uuid", None)
        _names[key] = _nvidia(str(uuid)) if uuid else f"{kind}:{index}"
    return _names[key]


def _nvidia(uuid: str) -> str:
    """CUDA tells the bare UUID; a program is given MIG instances by their names."""
    kind = "MIG" if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-") else "GPU"
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"{kind}-{uuid}"


def _read_mps() -> dict[str, AllocatorReading]:
    """PyTorch on Apple GPUs: what is in use, no watermark."""
    torch = sys.modules["torch"]
    if not torch.backends.mps.is_available():
        return {}
    current, held = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    return {"mps": AllocatorReading("torch.mps", current, None, held, None)} if held else {}


def _read_jax() -> dict[str, AllocatorReading]:
    """JAX: the backends that it has opened so far; its own list is the only one that opens none."""
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


def _tensorflow_devices() -> list[str]:
    """Names of TensorFlow's GPUs, if its context is initialised; asking for them would initialise it."""
    tensorflow = sys.modules.get("tensorflow")
    context = getattr(sys.modules["tensorflow.python.eager.context"], "_context", None)
    if tensorflow is None or not getattr(context, "_initialized", False):
        return []
    return [f"GPU:{index}" for index, _ in enumerate(tensorflow.config.list_logical_devices("GPU"))]


def _read_tensorflow() -> dict[str, AllocatorReading]:
    readings = {}
    for device in _tensorflow_devices():
        info = sys.modules["tensorflow"].config.experimental.get_memory_info(device)
        readings[device] = AllocatorReading("tensorflow", info["current"], info["peak"])
    return readings


def _reset_tensorflow(readings: dict[str, AllocatorReading]) -> None:
    for device in readings:
        sys.modules["tensorflow"].config.experimental.reset_memory_stats(device)


def _read_cupy() -> dict[str, AllocatorReading]:
    """CuPy's default pool on the calling thread's device: what is in use, no watermark.

    Asked only on a thread that has a CUDA context: a question to the pool would initialise CUDA otherwise.
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
        _names[key] = _nvidia(_dashed(uuid)) if len(uuid) == 16 else f"cuda:{index}"
    return {f"{_names[key]} cupy": AllocatorReading("cupy", used, None, held, None)}


def _dashed(uuid: bytes) -> str:
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _has_cuda_context() -> bool:
    """Whether this thread has a CUDA context; asks CUDA's library only where the program has loaded it."""
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
"""All libraries that are known."""

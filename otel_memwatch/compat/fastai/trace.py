"""Memory of GPUs, and its use and peak between two points of a program, in MB of 2**20 bytes.

Device numbers are CUDA's in this program and respect `CUDA_VISIBLE_DEVICES`.

With PyTorch, the figures come from its allocator: exact, for this process and this device alone. The allocator has one
resettable peak for all tracers. Each boundary of a tracer reads the peak, adds it to every open tracer, and resets it.
Therefore, tracers may nest and overlap. Without PyTorch, the figures are the driver's for the whole device.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from otel_memwatch.api.devices import GPUMemory as DeviceMemory


_Function = TypeVar("_Function", bound="Callable[..., Any]")

_MB = 2**20


class Gauge(Protocol):
    """Source of figures for one device."""

    key: str
    """Name of the device and the source."""

    def used(self) -> int:
        """Return the bytes in use now."""

    def peak(self) -> int:
        """Return the maximum of bytes in use since `restart`, at least those in use now."""

    def restart(self) -> None:
        """Reset `peak`."""


class _TorchGauge:
    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        # The current device belongs to the calling thread, so read it once here. A query would initialize an
        # unused CUDA, which takes half a gigabyte of the device.
        self._device = int(cuda.current_device()) if cuda.is_initialized() else 0
        self.key = f"torch:{self._device}"

    def used(self) -> int:
        return int(self._cuda.memory_allocated(self._device)) if self._cuda.is_initialized() else 0

    def peak(self) -> int:
        if not self._cuda.is_initialized():
            return 0
        return max(self.used(), int(self._cuda.max_memory_allocated(self._device)))

    def restart(self) -> None:
        if self._cuda.is_initialized():
            self._cuda.reset_peak_memory_stats(self._device)


class _DriverGauge:
    """Figures of the whole device, including other programs. Misses peaks between two readings."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.key = f"device:{device}"

    def used(self) -> int:
        figures = device_memory(self._device)
        return 0 if figures is None else figures[2]

    def peak(self) -> int:
        return self.used()

    def restart(self) -> None:
        return


def gauge() -> Gauge:
    """Return the gauge of the calling thread's current device."""
    module = cuda()
    return _DriverGauge(0) if module is None else _TorchGauge(module)


class OpenTracers:
    """Open tracers by device; each gets the highest of the allocator's peaks since its start."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[str, weakref.WeakSet[GPUMemTrace]] = {}

    def boundary(self, device: Gauge) -> int:
        """Add the peak since the last boundary to every open tracer of the device, and return the bytes in use."""
        with self._lock:
            peak, used = device.peak(), device.used()
            for tracer in tuple(self._open.get(device.key, ())):
                tracer.used_peak = max(tracer.used_peak, peak)
            device.restart()
            return used

    def open(self, device: Gauge, tracer: GPUMemTrace) -> int:
        """Begin a tracer with a peak of the bytes in use, and return these."""
        with self._lock:
            used = self.boundary(device)
            tracer.used_peak = used
            self._open.setdefault(device.key, weakref.WeakSet()).add(tracer)
            return used

    def close(self, device: Gauge, tracer: GPUMemTrace) -> None:
        """End a tracer. Deleting a tracer also ends it."""
        with self._lock:
            self._open.get(device.key, weakref.WeakSet()).discard(tracer)


open_tracers = OpenTracers()
"""Open tracers of this process, which shares one allocator peak."""


class _Silence(int):
    """Truth value that sets itself when called, because callers use both spellings."""

    _owner: GPUMemTrace

    @classmethod
    def of(cls, owner: GPUMemTrace, value: object) -> _Silence:
        made = cls(bool(value))
        made._owner = owner
        return made

    def __call__(self, silent: object = True) -> None:
        self._owner.silent = silent

    def __repr__(self) -> str:
        return repr(bool(self))


class GPUMemTrace:
    """Tracer of used and peaked GPU memory from its construction on; see the package's documentation.

    Args:
        silent: do not print in `report` and `report_n_reset`.
        ctx: text for every report.
        on_exit_report: print a report at the end of a `with` block.

    Attributes:
        used_start: bytes in use at its start or last reset.
        used_peak: maximum of bytes in use since then.

    """

    def __init__(self, silent: object = False, ctx: str | None = None, on_exit_report: object = True) -> None:
        self._silent = bool(silent)
        self.ctx = ctx
        self.on_exit_report = on_exit_report
        self.is_running = False
        self.used_start = self.used_peak = 0
        self.delta_used = self.delta_peaked = 0
        self._gauge = gauge()
        self.start()

    @property
    def silent(self) -> Any:
        """True if reports are silent; `trace.silent(True)`, `trace.silent = True` and `if trace.silent` all work."""
        return _Silence.of(self, self._silent)

    @silent.setter
    def silent(self, value: object) -> None:
        self._silent = bool(value)

    def start(self) -> None:
        """Start or restart on the calling thread's current device."""
        open_tracers.close(self._gauge, self)
        self._gauge = gauge()
        self.is_running = True
        self.reset()

    def stop(self) -> None:
        """Compute the final figures and keep them."""
        if self.is_running:
            self.data_set()
        self.is_running = False
        open_tracers.close(self._gauge, self)

    def reset(self) -> None:
        """Restart from the bytes in use now."""
        self.used_start = open_tracers.open(self._gauge, self)
        if not self.is_running:
            open_tracers.close(self._gauge, self)

    def data_set(self) -> None:
        """Compute the two differences for the current moment."""
        used = open_tracers.boundary(self._gauge) - self.used_start
        peaked = max(0, self.used_peak - self.used_start)
        if used > 0:
            peaked = max(0, peaked - used)
        self.delta_used, self.delta_peaked = int(used / _MB), int(peaked / _MB)

    def data(self) -> tuple[int, int]:
        """Return MB (2**20 bytes) used since the start and peaked above that; after a stop, the final figures."""
        if self.is_running:
            self.data_set()
        return self.delta_used, self.delta_peaked

    def __repr__(self) -> str:
        return self._text(None)

    def _text(self, subctx: str | None) -> str:
        used, peaked = self.data()
        remarks = [text for text in (self.ctx, subctx) if text is not None]
        note = f" ({': '.join(remarks)})" if remarks else ""
        return f"\u25b3Used Peaked MB: {used:6,.0f} {peaked:6,.0f}{note}"

    def report(self, subctx: str | None = None, *, note: str | None = None) -> None:
        """Print the figures with a remark; `note` is the older spelling of `subctx`."""
        text = self._text(note or None if subctx is None else subctx)
        if not self._silent:
            print(text)  # noqa: T201 - this method reports by printing

    def report_n_reset(self, subctx: str | None = None, *, note: str | None = None) -> None:
        """Print the figures and reset."""
        self.report(subctx, note=note)
        self.reset()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.on_exit_report:
            self.report("exit")

    def peak_monitor_start(self) -> None:
        """Do nothing: the allocator's counter keeps the peak, without a thread."""

    def peak_monitor_stop(self) -> None:
        """Do nothing."""

    def peak_monitor_func(self) -> None:
        """Not supported."""
        raise NotImplementedError(
            "There is no polling thread; data() gives the peak from the allocator's counter."
        )


def gpu_mem_trace(func: _Function) -> _Function:
    """Decorate a function to trace each call and report at its end."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with GPUMemTrace(ctx=func.__qualname__, on_exit_report=True):
            return func(*args, **kwargs)

    return cast("_Function", wrapper)


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

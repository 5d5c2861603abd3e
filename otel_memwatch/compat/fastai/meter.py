"""What a tracer reads: bytes in use on the current GPU now, and the most since the last time it was asked.

With PyTorch these are its allocator's figures: exact, of this process and this device alone. The allocator has one
resettable peak for everybody, so it is read, folded into every open tracer, and reset at each boundary of any
tracer: tracers may nest and overlap. Without PyTorch they are the driver's figures for the whole device.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Gauge(Protocol):
    """One way of reading one device."""

    key: str
    """Names the device and the way."""

    def used(self) -> int:
        """Bytes in use now."""

    def peak(self) -> int:
        """Most bytes in use since `restart`; at least those in use now."""

    def restart(self) -> None:
        """Begins a new stretch for `peak`."""


class _Torch:
    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        # The current device belongs to the calling thread: it is asked here, once, and kept. Asking a CUDA that is
        # not in use yet would start it, which takes half a gigabyte of the device.
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


class _Driver:
    """The whole device, other programs included; a peak between two readings is not seen."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.key = f"device:{device}"

    def used(self) -> int:
        from otel_memwatch.compat.fastai.memory import device_memory

        figures = device_memory(self._device)
        return 0 if figures is None else figures[2]

    def peak(self) -> int:
        return self.used()

    def restart(self) -> None:
        return


def cuda() -> Any | None:
    """`torch.cuda` where the program has imported PyTorch and there is a GPU that it can use; nothing is imported."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "cuda", None)
    return module if module is not None and module.is_available() else None


def gauge() -> Gauge:
    """The gauge of the calling thread's current device."""
    module = cuda()
    return _Driver(0) if module is None else _Torch(module)


class Watched(Protocol):
    """A tracer that takes part in the folding of peaks."""

    used_peak: int


class Folding:
    """Gives every open tracer of a device the highest peak of all stretches since its own start."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[str, weakref.WeakSet[Any]] = {}

    def boundary(self, device: Gauge) -> int:
        """Ends a stretch, folds its peak into every open tracer of the device, and gives the bytes in use."""
        with self._lock:
            peak, used = device.peak(), device.used()
            for tracer in self._tracers(device):
                tracer.used_peak = max(tracer.used_peak, peak)
            device.restart()
            return used

    def open(self, device: Gauge, tracer: Watched) -> int:
        """Begins a tracer, whose peak starts at the bytes in use, which are returned."""
        with self._lock:
            used = self.boundary(device)
            tracer.used_peak = used
            self._open.setdefault(device.key, weakref.WeakSet()).add(tracer)
            return used

    def close(self, device: Gauge, tracer: Watched) -> None:
        """Ends a tracer. A tracer that is deleted ends by itself."""
        with self._lock:
            self._open.get(device.key, weakref.WeakSet()).discard(tracer)

    def _tracers(self, device: Gauge) -> Iterator[Any]:
        return iter(tuple(self._open.get(device.key, ())))


folding = Folding()
"""The one folding of this process: the allocator's counter is one for the process, too."""

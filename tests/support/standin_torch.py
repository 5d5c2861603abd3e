"""A stand-in for the parts of `torch` that allocators are asked through, with an allocator that keeps watermarks.

Only for the arithmetic of operations: the real thing needs a GPU.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

UUID = "0d1e2f30-1111-2222-3333-444455556666"
"""Of the first device; of the others, with their number as the first digit."""


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError."""


class Device:
    """One device's caching allocator: it keeps what tensors give back."""

    limit = 80 << 30
    broken = False
    """True makes its statistics raise, as after a failed assertion on the device."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.observers: list[Callable[..., None]] = []
        self.current = self.peak = self.reserved = self.reserved_peak = 0
        self.ooms = self.retries = 0

    def take(self, size: int) -> None:
        """Allocates `size` bytes."""
        if self.current + size > self.limit:
            self.ooms += 1
            for observer in self.observers:
                observer(self.index, size, self.limit, self.limit - self.current)
            raise OutOfMemoryError("CUDA out of memory.")
        self.current += size
        self.reserved = max(self.reserved, self.current)
        self.peak = max(self.peak, self.current)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def give(self, size: int) -> None:
        """Frees `size` bytes into the cache."""
        self.current -= size

    def reset(self) -> None:
        """As torch.cuda.reset_peak_memory_stats."""
        self.peak, self.reserved_peak = self.current, self.reserved

    def stats(self) -> dict[str, Any]:
        """As torch.cuda.memory_stats_as_nested_dict."""
        if self.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return {
            "allocated_bytes": {"all": {"current": self.current, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.reserved_peak}},
            "num_ooms": self.ooms,
            "num_alloc_retries": self.retries,
        }


class Torch(ModuleType):
    """The module. `calls` notes whatever touches the devices."""

    def __init__(self, devices: int = 1, initialized: bool = True) -> None:
        super().__init__("torch")
        self.devices = [Device(index) for index in range(devices)]
        self.initialized = initialized
        self.calls: list[str] = []
        self.lazy: dict[str, str] = {}
        self.version = SimpleNamespace(hip=None)
        self._C = SimpleNamespace(
            _cuda_hasPrimaryContext=lambda index: self.devices[index].reserved_peak > 0,
            _cuda_attach_out_of_memory_observer=self._observe,
            _cuda_memoryStats=lambda index: self._noted("stats", self.devices[index].stats()),
        )
        self._later: list[Callable[[], None]] = []
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            device_count=lambda: self._noted("device_count", len(self.devices)),
            memory_stats_as_nested_dict=lambda index: self._noted("stats", self.devices[index].stats()),
            reset_peak_memory_stats=lambda index: self._noted("reset", self.devices[index].reset()),
            get_device_properties=lambda index: SimpleNamespace(uuid=f"{index}{UUID[1:]}"),
            init=self._init,
            _lazy_call=lambda call: call() if self.initialized else self._later.append(call),
            memory=SimpleNamespace(
                _record_memory_history=lambda **settings: self._noted("history", None),
                _dump_snapshot=self._dump,
            ),
        )

    def _init(self) -> None:
        """As torch.cuda.init: calls what was put off until now."""
        self.initialized = True
        for call in self._later:
            call()

    def _observe(self, observer: Callable[..., None]) -> None:
        for device in self.devices:
            device.observers.append(observer)

    def __getattr__(self, name: str) -> ModuleType:
        """As torch.__getattr__: some of its packages are imported when they are looked up."""
        if name in self.__dict__.get("lazy", {}):
            return importlib.import_module(self.lazy[name])
        raise AttributeError(name)

    def _dump(self, path: str) -> None:
        self.calls.append("dump")
        with suppress(
            ImportError
        ):  # as in PyTorch, which looks the package up to name the frames of compiled code
            hasattr(self, "_inductor")
        with open(path, "wb") as file:
            file.write(b"snapshot of %d bytes" % sum(device.reserved for device in self.devices))

    def _noted(self, call: str, answer: Any) -> Any:
        self.calls.append(call)
        return answer

"""A stand-in for `torch.cuda`: a caching allocator with its counters, and a current device for each thread."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any


class Cuda:
    """What the code under test asks of `torch.cuda`."""

    def __init__(self, uuids: tuple[str, ...] = ("11111111-aaaa-bbbb-cccc-000000000001",)) -> None:
        self._uuids = uuids
        self._thread = threading.local()
        self.allocated = [0] * len(uuids)
        self.most = [0] * len(uuids)
        self.emptied = 0
        self.started = True

    def is_available(self) -> bool:
        return bool(self._uuids)

    def is_initialized(self) -> bool:
        return self.started

    def device_count(self) -> int:
        return len(self._uuids)

    def current_device(self) -> int:
        assert self.started, "asking for the current device starts CUDA"
        return getattr(self._thread, "device", 0)

    def set_device(self, device: int) -> None:
        self._thread.device = device

    def get_device_properties(self, device: int) -> Any:
        return types.SimpleNamespace(uuid=self._uuids[device])

    def memory_allocated(self, device: int) -> int:
        return self.allocated[device]

    def max_memory_allocated(self, device: int) -> int:
        return self.most[device]

    def reset_peak_memory_stats(self, device: int) -> None:
        self.most[device] = self.allocated[device]

    def empty_cache(self) -> None:
        self.emptied += 1

    def allocate(self, mib: float, device: int | None = None) -> None:
        """Takes so many MiB, or gives them back."""
        device = self.current_device() if device is None else device
        self.allocated[device] += int(mib * 2**20)
        self.most[device] = max(self.most[device], self.allocated[device])

    def blip(self, mib: float, device: int | None = None) -> None:
        """Takes so many MiB and gives them back at once."""
        self.allocate(mib, device)
        self.allocate(-mib, device)


def install(monkeypatch: Any, cuda: Cuda) -> Cuda:
    """Makes it the `torch` that the program has imported."""
    module = types.ModuleType("torch")
    module.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return cuda

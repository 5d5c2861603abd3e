"""GPU memory of this process's operations, from the high-water marks of GPU libraries' allocators.

This code runs in the watched program. It reads PyTorch (CUDA, ROCm, XPU, MPS), JAX, TensorFlow and CuPy, but only after
the program has imported and initialised them. It imports, initialises, synchronises and empties nothing. It resets
counters of the program only with `OTEL_MEMWATCH_EXACT_GPU`.

Allocators do not include memory allocated from CUDA directly, CUDA contexts, or other libraries. The figures of the
device (`hw.gpu.memory.usage`) include all of it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from otel_memwatch.in_target.allocators.bounds import AllocatorBounds
from otel_memwatch.in_target.allocators.libraries import supported_libraries

if TYPE_CHECKING:
    from typing import Any

    from otel_memwatch.in_target.allocators.libraries import Library

VARIABLE = "OTEL_MEMWATCH_EXACT_GPU"
"""Environment variable: 1 makes operations' peaks exact by resetting the allocators' high-water marks at boundaries."""


class Allocators:
    """Open operations of this process, with the allocators' values at their boundaries.

    Not thread-safe, and its functions may raise: the recorder holds a lock and catches errors.

    Args:
        exact: reset the high-water mark at each boundary, after counting it for all open operations.

    """

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        """True if boundaries reset the high-water marks."""
        self._waiting = supported_libraries()
        self._active: list[tuple[Library, AllocatorBounds]] = []
        """Libraries that have held memory, with the bounds of open operations."""

    def in_use(self) -> bool:
        """Return whether a library has held memory on a device so far. Until then, callers may skip `opened`."""
        if not self._active:
            self._find()
        return bool(self._active)

    def opened(self, key: int) -> None:
        """Note that an operation begins; `key` is its number."""
        self._boundary()
        for _, bounds in self._active:
            bounds.open(key)

    def closed(self, key: int) -> dict[str, Any] | None:
        """Return the figures by device of an operation that ends; `None` if no allocator held memory during it.

        An operation without a call of `opened` began before the program used its GPU library. A device is identified by
        its UUID if known, otherwise by the library's name for it. `None` is unknown.

        - allocator: "torch.cuda", "jax" ...
        - peak: peak of bytes in tensors during the operation, lower bound
        - low, high: bounds of the peak, in bytes
        - certainty: "exact" or "interval"
        - reserved_peak: peak of bytes reserved from the device, lower bound
        - start, end: bytes in tensors at the operation's boundaries
        - ooms, retries: failed allocations, and allocations that succeeded only after the cache was freed
        - fragmentation: bytes reserved from the device but not in tensors, at the operation's end
        """
        self._boundary()
        figures: dict[str, Any] = {}
        for _, bounds in self._active:
            figures.update(bounds.close(key))
        return figures or None

    def _boundary(self) -> None:
        self._find()
        for library, bounds in self._active:
            try:
                readings = library.read() or {}
                bounds.segment(readings)
                if self.exact and library.reset is not None:
                    library.reset(readings)
                    bounds.begin_again(readings)
            except Exception:  # noqa: BLE001 - no error of a GPU library may reach the program
                bounds.segment({})

    def _find(self) -> None:
        """Find libraries that have begun to hold memory."""
        imported = sys.modules
        for library in self._waiting:
            if library.module in imported:
                break
        else:
            return
        for library in tuple(self._waiting):
            if library.module in imported:
                try:
                    readings = library.read()
                except Exception:  # noqa: BLE001, S112 - as above
                    continue
                if readings is None or readings:
                    self._waiting.remove(library)
                if readings:
                    self._active.append((library, AllocatorBounds(library.name)))


_here = Allocators(os.environ.get(VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"})


def here() -> Allocators:
    """Return the allocators of this process. A forked child has others."""
    return _here


def be_exact(*, wanted: bool) -> None:
    """Enable or disable resets of the high-water marks, in this process and in programs that it starts."""
    _here.exact = wanted
    if wanted:
        os.environ[VARIABLE] = "1"
    else:
        os.environ.pop(VARIABLE, None)


def _forget() -> None:
    """Discard the parent's state in a forked child. Its operations are not open here."""
    global _here  # noqa: PLW0603 - one state for each process
    _here = Allocators(_here.exact)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

__all__ = ["VARIABLE", "Allocators", "be_exact", "here"]

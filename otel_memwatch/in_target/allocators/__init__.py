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
from threading import RLock
from typing import Any

from otel_memwatch.in_target.allocators.bounds import AllocatorBounds, AllocatorReading
from otel_memwatch.in_target.allocators.libraries import LIBRARIES, Library

VARIABLE = "OTEL_MEMWATCH_EXACT_GPU"
"""Environment variable: 1 makes operations' peaks exact by resetting the allocators' high-water marks at boundaries."""


class Allocators:
    """Open operations of this process, with the allocators' values at their boundaries.

    Args:
        exact: reset the high-water mark at each boundary, after counting it for all open operations.
        libraries: the libraries to read.

    """

    def __init__(self, exact: bool, libraries: tuple[Library, ...] = LIBRARIES) -> None:
        self._exact = exact
        self._libraries = libraries
        self._bounds = AllocatorBounds()
        self._used = False
        self._lock = RLock()  # reentrant, because signal handlers and finalizers may run anywhere

    @property
    def exact(self) -> bool:
        """Return whether boundaries reset the high-water marks."""
        return self._exact

    def set_exact(self, wanted: bool) -> None:
        """Enable or disable resets from the next boundary on."""
        with self._lock:
            self._exact = wanted

    def in_use(self) -> bool:
        """Return whether a library has held memory on a device so far. Until then, callers may skip `opened`."""
        if not self._used:
            self._used = any(
                library.module in sys.modules and _answers(library) for library in self._libraries
            )
        return self._used

    def opened(self, key: int) -> None:
        """Note that an operation begins."""
        with self._lock:
            self._boundary()
            self._bounds.open(key)

    def closed(self, key: int) -> dict[str, Any] | None:
        """Return the figures by device of an operation that ends; `None` if no allocator held memory during it.

        An operation without a call of `opened` began before the program used its GPU library.
        """
        with self._lock:
            self._boundary()
            return self._bounds.close(key)

    def _boundary(self) -> None:
        imported = sys.modules
        for library in self._libraries:
            if library.module not in imported:
                continue
            try:
                readings = library.read()
                self._bounds.segment(library.name, readings)
                if self._exact and library.reset is not None and readings:
                    library.reset(readings)
                    self._bounds.begin_segment(library.read())
            except Exception:  # noqa: BLE001 - no error of a GPU library may reach the program
                self._bounds.segment(library.name, {})


def _answers(library: Library) -> bool:
    try:
        return bool(library.read())
    except Exception:  # noqa: BLE001 - as above
        return False


_here = Allocators(os.environ.get(VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"})


def in_use() -> bool:
    """Return whether a GPU library has held memory on a device in this process. Never raises. Takes 1 us if not."""
    return _here.in_use()


def opened(key: int) -> None:
    """Note that an operation of this process begins; `key` is its number. Never raises."""
    _here.opened(key)


def closed(key: int) -> dict[str, Any] | None:
    """Return the figures by device of an operation that ends. Never raises.

    A device is identified by its UUID if known, otherwise by the library's name for it. `None` is unknown.

    - allocator: "torch.cuda", "jax" ...
    - peak: peak of bytes in tensors during the operation, lower bound
    - low, high: bounds of the peak, in bytes
    - certainty: "exact" or "interval"
    - reserved_peak: peak of bytes reserved from the device, lower bound
    - start, end: bytes in tensors at the operation's boundaries
    - ooms, retries: failed allocations, and allocations that succeeded only after the cache was freed
    - fragmentation: bytes reserved from the device but not in tensors, at the operation's end
    """
    return _here.closed(key)


def be_exact(*, wanted: bool) -> None:
    """Enable or disable resets of the high-water marks, in this process and in programs that it starts."""
    _here.set_exact(wanted)
    if wanted:
        os.environ[VARIABLE] = "1"
    else:
        os.environ.pop(VARIABLE, None)


def _forget() -> None:
    """Discard the parent's state in a forked child. Its operations are not open here, and its lock may stay locked."""
    global _here  # noqa: PLW0603 - one state for each process
    _here = Allocators(_here.exact)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

__all__ = ["VARIABLE", "AllocatorReading", "Allocators", "Library", "be_exact", "closed", "in_use", "opened"]

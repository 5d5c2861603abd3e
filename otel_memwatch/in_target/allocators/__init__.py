"""GPU memory of the operations of this process, from the watermarks that GPU libraries keep of their own allocators.

Works inside the watched program: PyTorch (CUDA, ROCm, XPU, MPS), JAX, TensorFlow and CuPy are asked when the program
itself has imported and initialised them. Nothing is imported, initialised, synchronised or emptied here, and no counter
of the program's is reset, unless `OTEL_MEMWATCH_EXACT_GPU` asks for it.

What an allocator cannot see: memory taken from CUDA directly, CUDA's own contexts, other libraries. The device's own
figures (`hw.gpu.memory.usage`) have all of it.
"""

from __future__ import annotations

import os
import sys
from threading import RLock
from typing import Any

from otel_memwatch.in_target.allocators.bounds import AllocatorBounds, AllocatorReading
from otel_memwatch.in_target.allocators.libraries import LIBRARIES, Library

VARIABLE = "OTEL_MEMWATCH_EXACT_GPU"
"""Environment variable: 1 makes every operation's peak exact by resetting the allocators' watermarks at its boundaries."""


class Allocators:
    """The operations that are open in this process, and what their boundaries saw.

    Args:
        exact: reset the watermark at each boundary, after it has been added to all open operations.
        libraries: whom to ask.

    """

    def __init__(self, exact: bool, libraries: tuple[Library, ...] = LIBRARIES) -> None:
        self._exact = exact
        self._libraries = libraries
        self._bounds = AllocatorBounds()
        self._used = False
        self._lock = RLock()  # one thread may come in twice: signal handlers and finalizers run anywhere

    @property
    def exact(self) -> bool:
        """Whether the watermarks are reset at boundaries."""
        return self._exact

    def set_exact(self, wanted: bool) -> None:
        """Resets them, or leaves them alone, from the next boundary on."""
        with self._lock:
            self._exact = wanted

    def in_use(self) -> bool:
        """Whether a library has held anything on a device so far: while none has, no operation need be announced."""
        if not self._used:
            self._used = any(
                library.module in sys.modules and _answers(library) for library in self._libraries
            )
        return self._used

    def opened(self, key: int) -> None:
        """An operation begins."""
        with self._lock:
            self._boundary()
            self._bounds.open(key)

    def closed(self, key: int) -> dict[str, Any] | None:
        """An operation ends: its figures by device, `None` where no allocator held anything meanwhile.

        An operation that was not announced began before the program used its GPU library.
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
            except Exception:  # noqa: BLE001 - what a GPU library raises must not reach the program
                self._bounds.segment(library.name, {})


def _answers(library: Library) -> bool:
    try:
        return bool(library.read())
    except Exception:  # noqa: BLE001 - as above
        return False


_here = Allocators(os.environ.get(VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"})


def in_use() -> bool:
    """Whether a GPU library has held anything on a device so far, in this process. Never raises; 1 us where none has."""
    return _here.in_use()


def opened(key: int) -> None:
    """An operation of this process begins; `key` is its number. Never raises."""
    _here.opened(key)


def closed(key: int) -> dict[str, Any] | None:
    """The operation ends. Never raises.

    By device (its UUID where that is told, else the library's name for it):

    allocator      whose figures these are: "torch.cuda", "jax" ...
    peak           bytes in tensors at the worst moment of the operation: the lower end of what is certain
    low, high      bounds of that, in bytes; `high` of `None`: none is known
    certainty      "exact" or "interval"
    reserved_peak  bytes that the allocator held from the device at the worst moment, at least; `None`: not told
    start, end     bytes in tensors at the operation's boundaries
    ooms, retries  allocations that failed, and that succeeded only after the cache was given back; `None`: not told
    fragmentation  bytes held from the device but not in tensors, at the operation's end; `None`: not told
    """
    return _here.closed(key)


def be_exact(*, wanted: bool) -> None:
    """Whether to reset the watermarks from the next boundary on, here and in programs started from here."""
    _here.set_exact(wanted)
    if wanted:
        os.environ[VARIABLE] = "1"
    else:
        os.environ.pop(VARIABLE, None)


def _forget() -> None:
    """In a forked child: no operation of the parent is open here, and its lock may be held for ever."""
    global _here  # noqa: PLW0603 - one ledger for each process
    _here = Allocators(_here.exact)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

__all__ = ["VARIABLE", "AllocatorReading", "Allocators", "Library", "be_exact", "closed", "in_use", "opened"]

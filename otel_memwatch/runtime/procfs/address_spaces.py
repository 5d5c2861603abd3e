"""Which processes have one address space in common: clone(CLONE_VM) without CLONE_THREAD, and vfork up to exec.

The kernel counts the pages of such a space with each of them, and a page's share by address spaces, not by processes:
the proportional sizes of two that share 200 MiB are 200 MiB each.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""Number of the call, by machine."""
_KCMP_VM = 1
_SAME, _BEFORE, _AFTER, _REFUSED = 0, 1, 2, -1
"""What the call gives: the kernel has an order of its own for address spaces."""


def compare(pid: int, other: int) -> int:
    """kcmp(2) of the address spaces of two processes; -1 where it is not to be had (seccomp, rights). Cost: 5 us."""
    number = _KCMP.get(os.uname().machine) if sys.maxsize > 1 << 32 else None
    if number is None:
        return _REFUSED
    try:
        from _ctypes import call_function, dlopen, dlsym

        this_program: Any = None
        address = dlsym(dlopen(this_program, 0), "syscall")
        return int(call_function(address, (number, pid, other, _KCMP_VM, 0, 0)))
    except (ImportError, OSError):
        return _REFUSED


def are_apart(pid: int, other: int) -> bool:
    """Whether two living processes certainly have different address spaces. Cost: 5 us."""
    return compare(pid, other) in (_BEFORE, _AFTER)


class AddressSpaces:
    """Those that were met so far, each under the process that it was met with.

    Where the kernel does not compare, two whose extent, largest size and watermark are equal to the page are taken for
    one: rather too little is counted than too much. One that grows at that moment is taken for two.
    """

    def __init__(self, proc: str, compare: Callable[[int, int], int] = compare) -> None:
        self._proc = proc
        self._compare = compare
        self._met: dict[bytes, list[int]] = {}
        """By extent, in the kernel's order: forked processes have the same extent, and may be many."""
        self._figures: dict[int, tuple[bytes, ...]] = {}

    def is_new(self, pid: int, extent: bytes) -> bool:
        """Whether the process has an address space that was not met. `extent`: its first and last address, as text."""
        met = self._met.setdefault(extent, [])
        low, high = 0, len(met)
        while low < high:
            middle = (low + high) // 2
            order = self._compare(pid, met[middle])
            if order == _SAME:
                return False
            if order == _BEFORE:
                high = middle
            elif order == _AFTER:
                low = middle + 1
            else:
                return self._is_new_by_figures(pid, met)
        met.insert(low, pid)
        return True

    def _is_new_by_figures(self, pid: int, met: list[int]) -> bool:
        own = self._figures_of(pid)
        if own and any(own == self._figures_of(other) for other in met):
            return False
        met.append(pid)
        return True

    def _figures_of(self, pid: int) -> tuple[bytes, ...]:
        """Its largest size and its watermark; empty where they cannot be read."""
        found = self._figures.get(pid)
        if found is None:
            try:
                with open(f"{self._proc}/{pid}/status", "rb") as file:
                    lines = file.read().splitlines()
            except OSError:
                lines = []
            found = tuple(line for line in lines if line.startswith((b"VmPeak:", b"VmHWM:")))
            self._figures[pid] = found
        return found

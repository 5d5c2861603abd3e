"""Detection of processes with a shared address space: clone(CLONE_VM) without CLONE_THREAD, and vfork before exec.

The kernel counts the pages of a shared address space for each process. It divides shared pages by address spaces, not by
processes. Two processes that share one of 200 MiB have a proportional size of 200 MiB each.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""Number of the system call, by machine."""
_KCMP_VM = 1
_SAME, _BEFORE, _AFTER, _REFUSED = 0, 1, 2, -1
"""Results of the call. The kernel defines an order of address spaces."""


def compare(pid: int, other: int) -> int:
    """Compare the address spaces of two processes with kcmp(2); -1 if not permitted (seccomp, rights). Cost: 5 us."""
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
    """Return whether two living processes certainly have different address spaces. Cost: 5 us."""
    return compare(pid, other) in (_BEFORE, _AFTER)


class AddressSpaces:
    """Address spaces found so far, each with the process that had it first.

    If the kernel does not compare them, two with the same extent, largest size and high-water mark count as one. The sum
    is then rather too low than too high. An address space that grows at that moment counts as two.
    """

    def __init__(self, proc: str, compare: Callable[[int, int], int] = compare) -> None:
        self._proc = proc
        self._compare = compare
        self._met: dict[bytes, list[int]] = {}
        """PIDs by extent, in the kernel's order. Many forked processes may have the same extent."""
        self._figures: dict[int, tuple[bytes, ...]] = {}

    def is_new(self, pid: int, extent: bytes) -> bool:
        """Return whether the process has a new address space. `extent` is its first and last address, as text."""
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
                own = self._figures_of(pid)
                if own and any(own == self._figures_of(other) for other in met):
                    return False
                met.append(pid)
                return True
        met.insert(low, pid)
        return True

    def _figures_of(self, pid: int) -> tuple[bytes, ...]:
        """Return its largest size and high-water mark; empty if not readable."""
        found = self._figures.get(pid)
        if found is None:
            try:
                lines = read_once(f"{self._proc}/{pid}/status").splitlines()
            except OSError:
                lines = []
            found = tuple(line for line in lines if line.startswith((b"VmPeak:", b"VmHWM:")))
            self._figures[pid] = found
        return found

"""What GPU allocators add to an operation, without the time of the library's own statistics.

Usage: python tests/bench/bench_gpu_operations.py [ROUNDS]

A stand-in for PyTorch returns statistics that exist already, in the form and size of PyTorch's. On a real GPU each of
an operation's two readings adds PyTorch's own time: 12 us on an H200, 30 us between launches. "Cold" touches 16 MiB
before each operation, as a training step does. Each cost is the median of single operations; it asserts nothing.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from otel_memwatch.in_target.operations import activate, deactivate, operation
from otel_memwatch.in_target.operations.native import COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable

POOLS = ("all", "small_pool", "large_pool")
VALUES = ("current", "peak", "allocated", "freed")
KINDS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
TOUCHED = bytearray(16 << 20)


class Torch(ModuleType):
    """As much of PyTorch as an operation reads: one device, one tensor that comes and goes."""

    def __init__(self) -> None:
        super().__init__("torch")
        stats: dict[str, Any] = {
            kind: {pool: dict.fromkeys(VALUES, 300 << 20) for pool in POOLS} for kind in KINDS
        }
        stats.update(num_ooms=0, num_alloc_retries=0)
        self.version = SimpleNamespace(hip=None)
        self._C = SimpleNamespace(
            _cuda_hasPrimaryContext=lambda index: True, _cuda_memoryStats=lambda index: stats
        )
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 1,
            memory_stats_as_nested_dict=lambda index: stats,
            get_device_properties=lambda index: SimpleNamespace(uuid="0d1e2f30-1111-2222-3333-444455556666"),
        )
        self.xpu = SimpleNamespace(is_initialized=lambda: False)


def empty() -> None:
    with operation("step"):
        pass


def cost(work: Callable[[], None], rounds: int, *, cold: bool) -> float:
    """Median of microseconds."""
    spent = []
    for number in range(rounds):
        if cold:
            TOUCHED[number % 64 :: 64] = bytes(len(range(number % 64, len(TOUCHED), 64)))
        begin = time.perf_counter_ns()
        work()
        spent.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(spent)


def measured(rounds: int) -> tuple[float, float]:
    """Costs of an operation with warm and with cold caches."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        activate(directory)
        cost(empty, 100, cold=False)
        found = cost(empty, 10 * rounds, cold=False), cost(empty, rounds, cold=True)
        deactivate()
    return found


def main() -> None:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    os.environ["OTEL_MEMWATCH_EXACT_GPU"] = "0"
    without = measured(rounds)
    sys.modules["torch"] = Torch()
    with_gpu = measured(rounds)
    print(f"empty operation, {'compiled' if COMPILED else 'Python'}, us       warm   cold")
    print(f"without a GPU library              {without[0]:8.1f} {without[1]:6.1f}")
    print(f"with PyTorch, statistics for free  {with_gpu[0]:8.1f} {with_gpu[1]:6.1f}")


if __name__ == "__main__":
    main()

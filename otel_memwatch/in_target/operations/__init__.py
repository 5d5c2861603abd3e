"""Library for operations inside the watched program. Standard library only, no thread, cheap to import.

An operation has two boundaries: its opening and its closing. At each one, the process reads its high-water mark of
resident memory, counts it for every open operation, and resets it. Each operation thus has an exact peak, however
operations nest, overlap or repeat.

Each boundary is one line, written at once into the run directory (`OTEL_MEMWATCH_RUN_DIR`). Outside a run, operations
do nothing.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy

TYPE_CHECKING = False  # type checkers know this name; `typing` would cost every watched program 9 ms
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.api import Operation, mark, operation
    from otel_memwatch.in_target.operations.recorder import activate, deactivate, record_heap
    from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX, RUN_DIRECTORY_VARIABLE

__all__ = [
    "OPERATIONS_PREFIX",
    "OPERATIONS_SUFFIX",
    "RUN_DIRECTORY_VARIABLE",
    "Operation",
    "activate",
    "deactivate",
    "mark",
    "operation",
    "record_heap",
]

__getattr__ = lazy.names(
    __name__,
    {
        "OPERATIONS_PREFIX": "journal",
        "OPERATIONS_SUFFIX": "journal",
        "RUN_DIRECTORY_VARIABLE": "recorder",
        "Operation": "api",
        "activate": "recorder",
        "deactivate": "recorder",
        "mark": "api",
        "operation": "api",
        "record_heap": "recorder",
    },
)

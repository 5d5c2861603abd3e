"""Operations: the library inside the watched program. Standard library only, no thread, cheap to import.

At every boundary (an opening or a closing) of an operation the process reads its watermark of resident memory, counts
it for every operation that is open, and starts it anew: so each operation has its exact peak, however they nest,
overlap or repeat. Each boundary is one line, written at once, in the run directory of the run that the program is
part of (`OTEL_MEMWATCH_RUN_DIR`); outside a run nothing happens.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy

TYPE_CHECKING = False  # the name that type checkers know: `typing` costs every watched program 9 ms
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.api import Operation, mark, operation
    from otel_memwatch.in_target.operations.recorder import activate, deactivate
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
    },
)

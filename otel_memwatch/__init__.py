"""Watch the memory, CPU, I/O and GPU use of any command, and mark its operations.

Importing this package imports nothing else: the names below are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know: importing `typing` costs every watched program 9 ms
if TYPE_CHECKING:
    from typing import Any

    from otel_memwatch.api import Run, attach, load_run, watch
    from otel_memwatch.devices import GPU, GPUMemory, best_gpu, gpus
    from otel_memwatch.errors import MemwatchError
    from otel_memwatch.operations import mark, operation

__version__ = "0.1.0"

__all__ = [
    "GPU",
    "GPUMemory",
    "MemwatchError",
    "Run",
    "__version__",
    "attach",
    "best_gpu",
    "gpus",
    "load_run",
    "mark",
    "operation",
    "watch",
]

_HOMES = {
    "GPU": "devices",
    "GPUMemory": "devices",
    "best_gpu": "devices",
    "gpus": "devices",
    "load_ipython_extension": "compat.ipython",
    "unload_ipython_extension": "compat.ipython",
    "MemwatchError": "errors",
    "Run": "api",
    "attach": "api",
    "load_run": "api",
    "mark": "operations",
    "operation": "operations",
    "watch": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))

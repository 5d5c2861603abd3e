"""Record the memory, CPU, I/O and GPU use of any command, and mark its operations.

Importing this package imports almost nothing: each name below is loaded at its first use.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy

TYPE_CHECKING = False  # type checkers know this name; `typing` would cost every watched program 9 ms
if TYPE_CHECKING:
    from otel_memwatch._version import __version__
    from otel_memwatch.api import Run, attach, load_run, run_command, run_command_async, watch
    from otel_memwatch.api.devices import GPU, GPUMemory, best_gpu, gpus
    from otel_memwatch.errors import MemwatchError
    from otel_memwatch.in_target.operations import mark, operation

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
    "run_command",
    "run_command_async",
    "watch",
]

__getattr__ = lazy.names(
    __name__,
    {
        "__version__": "_version",
        "GPU": "api.devices",
        "GPUMemory": "api.devices",
        "best_gpu": "api.devices",
        "gpus": "api.devices",
        "load_ipython_extension": "plugins.ipython",
        "unload_ipython_extension": "plugins.ipython",
        "MemwatchError": "errors",
        "Run": "api.loaded_run",
        "attach": "api.watching",
        "load_run": "api.loaded_run",
        "mark": "in_target.operations",
        "operation": "in_target.operations",
        "run_command": "api.commands",
        "run_command_async": "api.commands",
        "watch": "api.watching",
    },
)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))

"""Python API for recording and reading runs.

Importing this package imports nothing else, so a watched program loads only the parts that it uses:

- `watching`: `watch()` and `attach()`
- `commands`: `run_command()` and `run_command_async()`
- `loaded_run`: `Run` and `load_run()`
- `devices`: `gpus()` and `best_gpu()`
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.api.commands import run_command, run_command_async
    from otel_memwatch.api.loaded_run import Run, load_run
    from otel_memwatch.api.watching import attach, watch

__all__ = ["Run", "attach", "load_run", "run_command", "run_command_async", "watch"]

__getattr__ = lazy.names(
    __name__,
    {
        "Run": "loaded_run",
        "attach": "watching",
        "load_run": "loaded_run",
        "run_command": "commands",
        "run_command_async": "commands",
        "watch": "watching",
    },
)

"""ipython_memory_usage: memory, time and CPU of every cell.

Use `%load_ext otel_memwatch.compat.ipython` for `%load_ext ipython_memory_usage`. `%load_ext otel_memwatch` loads the same
magics with another greeting.

Works the same:
    * %imu_start and %imu_stop, the older %ipython_memory_usage_start and _stop, and their return values.
    * The line for each cell, to the character.
    * start_watching_memory and stop_watching_memory.
    * The perf variant, as an option: `%imu_start --perf [EVENT]`, with its sentence. perf.process_line and
      perf.process_lines parse perf's output.

Differs, and why:
    * The peak is the kernel's high-water mark: exact, however short. The older tool sampled at most ten times a second.
    * Children count. The figures sum the resident memory of this process and its living descendants; shared pages count
      once for each process. Peaks of descendants come from the monitor's samples. For a child that ended in the cell and
      had more memory than this process and all children before, the kernel reports the peak.
    * The time is that of the cell alone, 0.1 s less than before. The first line describes the `%imu_start` itself, not the
      time since the import.
    * CPU is the mean over the whole cell, for all processors and for the busiest one. The older tool gave the mean and the
      maximum of a few samples. Both are host-wide, as before.
    * No thread runs; the number of threads does not grow with the cells.
    * The figures are available: `last`, `history` and `summary()` of this module, `%imu_summary`, and the value of
      `%memwatch STATEMENT` or `%%memwatch`.
    * A cell is an operation `In [n]`, and a span if OpenTelemetry is configured.
    * perf counts all threads and children from the cell's start to its end, without waiting for a sample. An unknown,
      forbidden or unsupported event gives an error of one sentence. Zero is a count.
    * Outside IPython, the import has no effect, and starting reports that IPython is missing. The extension can be unloaded.
    * Each cell resets the high-water mark at its start and end, which lowers this process's `ru_maxrss`.
      `OTEL_MEMWATCH_EXACT=0` prevents the reset.

Not supported:
    * %lmagic, a demonstration.
    * during_execution_memory_sampler: the program does not sample.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from otel_memwatch.errors import Unavailable

if TYPE_CHECKING:
    from otel_memwatch.compat.ipython.cells import Cell, Summary
    from otel_memwatch.compat.ipython.watcher import Watcher

    last: Cell | None
    history: list[Cell]

__all__ = [
    "history",
    "last",
    "load_ipython_extension",
    "start_watching_memory",
    "stop_watching_memory",
    "summary",
    "unload_ipython_extension",
]

_ATTRIBUTE = "_otel_memwatch"
"""Name of the shell's attribute that holds its watcher."""


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        raise Unavailable(
            "This is no IPython session.", "in a script use: with otel_memwatch.operation('name'):"
        )
    return shell


def _watcher(shell: Any) -> Watcher:
    from otel_memwatch.compat.ipython.watcher import Watcher

    watcher = getattr(shell, _ATTRIBUTE, None)
    if watcher is None:
        watcher = Watcher(shell)
        setattr(shell, _ATTRIBUTE, watcher)
    return cast("Watcher", watcher)


def register(ipython: Any) -> None:
    """Register the magics without printing."""
    from otel_memwatch.compat.ipython.magics import MemwatchMagics

    MemwatchMagics(ipython, _watcher(ipython)).register()


def load_ipython_extension(ipython: Any) -> None:
    """Run `%load_ext otel_memwatch.compat.ipython`."""
    register(ipython)
    print("Enabling IPython Memory Usage, use %imu_start to begin, %imu_stop to end")  # noqa: T201 - text of the older tool


def unload_ipython_extension(ipython: Any) -> None:
    """Stop measuring and unregister the magics."""
    from otel_memwatch.compat.ipython.magics import MemwatchMagics

    watcher = _watcher(ipython)
    watcher.stop()
    MemwatchMagics(ipython, watcher).unregister()


def start_watching_memory(perf: str | None = None) -> None:
    """Run `%imu_start`. Raises `Unavailable` outside IPython."""
    _watcher(_shell()).start(perf)


def stop_watching_memory() -> None:
    """Run `%imu_stop`."""
    _watcher(_shell()).stop()


def summary() -> Summary:
    """Return all cells measured so far, the largest peak first. Raises `Unavailable` outside IPython."""
    return _watcher(_shell()).summary()


def __getattr__(name: str) -> Any:
    if name in {"last", "history"}:
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        if shell is None:
            return None if name == "last" else []
        return getattr(_watcher(shell), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

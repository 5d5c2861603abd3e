"""ipython_memory_usage: memory, time and CPU of every cell.

`%load_ext otel_memwatch.compat.ipython` for `%load_ext ipython_memory_usage`; `%load_ext otel_memwatch` brings the same
magics with a greeting of its own.

Works the same:
    %imu_start and %imu_stop (and the older %ipython_memory_usage_start and _stop) with what they return, the line for
    each cell to the character, start_watching_memory and stop_watching_memory. The perf variant is an option:
    `%imu_start --perf [EVENT]`, with its sentence; perf.process_line and perf.process_lines read what perf prints.

Differs, and why:
    * The peak is the kernel's watermark: exact however short it was. Before, it was sampled ten times a second, at best.
    * Children count: the figures are those of this process and its living descendants (resident memory, summed: pages
      that they share count once for each), their peaks as the monitor saw them.
    * The time is that of the cell alone, 0.1 s less than before. The first line is about the `%imu_start` itself, not the
      time since the import.
    * CPU is the mean over the whole cell, for all processors and for the busiest one; before, it was the mean and the
      maximum of a few samples. Both are host-wide, as they were.
    * No thread runs; the number of threads does not grow with the cells.
    * The figures can be had: `last`, `history` and `summary()` of this module, `%imu_summary`, and `%memwatch STATEMENT` or
      `%%memwatch`, whose value they are. A cell is an operation `In [n]`: a span, where OpenTelemetry is configured.
    * perf counts from the cell's begin to its end, all threads and children; nothing has to wait for a sample. An event
      that is not known, not allowed or not supported is told in a sentence. Zero is a count.
    * Outside IPython importing this does nothing, and starting says what is missing. The extension can be unloaded.
    * The watermark is reset at each cell's ends, which lowers this process's own `ru_maxrss` (`OTEL_MEMWATCH_EXACT=0`
      forbids it).

Not supported:
    %lmagic, a demonstration. during_execution_memory_sampler: there is no sampling in the program.
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
"""Attribute of the shell that has its watcher."""


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
    """Makes the magics known, and says nothing."""
    from otel_memwatch.compat.ipython.magics import MemwatchMagics

    MemwatchMagics(ipython, _watcher(ipython)).register()


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext otel_memwatch.compat.ipython`."""
    register(ipython)
    print("Enabling IPython Memory Usage, use %imu_start to begin, %imu_stop to end")  # noqa: T201 - the older one's words


def unload_ipython_extension(ipython: Any) -> None:
    """Stops, and takes the magics away."""
    from otel_memwatch.compat.ipython.magics import MemwatchMagics

    watcher = _watcher(ipython)
    watcher.stop()
    MemwatchMagics(ipython, watcher).unregister()


def start_watching_memory(perf: str | None = None) -> None:
    """The same as `%imu_start`. Raises `Unavailable` outside IPython."""
    _watcher(_shell()).start(perf)


def stop_watching_memory() -> None:
    """The same as `%imu_stop`."""
    _watcher(_shell()).stop()


def summary() -> Summary:
    """All cells measured so far, the largest peak first. Raises `Unavailable` outside IPython."""
    return _watcher(_shell()).summary()


def __getattr__(name: str) -> Any:
    if name in {"last", "history"}:
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        if shell is None:
            return None if name == "last" else []
        return getattr(_watcher(shell), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

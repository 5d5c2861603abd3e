"""NNCF's memory monitor (`tools/memory_monitor.py`) and its visualiser of compression results.

Replacements:

* Import: `from otel_memwatch.compat.nncf import MemoryMonitor, MemoryType` for `from memory_monitor import ...`.
* Command: `python -m otel_memwatch.compat.nncf --log-dir DIR COMMAND...` for `python memory_monitor.py ...`. The whole
  command line may be in quotation marks (`"python x.py --flag v"`, `"a && b"`).
* Plot: `otel-memwatch tradeoff RESULTS.csv --output-dir DIR` for `python visualize_compression_results.py ...`.

Works the same:
    * MemoryType, MemoryUnit, memory_monitor_context, visualize.
    * MemoryMonitor: start, stop, get_data, save_memory_logs, save_memory_plot, and use as context manager.
    * Names and format of the log files, the plots, the summary table, the Markdown table and the trade-off plot.
    * The older spellings of options.

Differs, and why:
    * A separate monitor process samples, not a thread of the program. A call that holds the interpreter does not stop it,
      and its memory is not part of the figures.
    * A separate process draws the plots, for the same reason. The data omit the time of drawing.
    * The largest value is the true peak of this process, from the kernel's high-water mark, not the largest sample.
    * A monitor resets the high-water mark when it starts and ends, which lowers this process's `ru_maxrss`.
      `OTEL_MEMWATCH_EXACT=0` prevents the reset.
    * There are always two samples: a short block gives data, not an exception.
    * Monitors that run at the same time share one recording, and the interval of the first. Under `otel-memwatch wrap`
      they share the recording of the wrapped command, which counts the whole tree.
    * Arguments of a command that is not quoted as a whole reach it unchanged, without a shell.
    * The exit code is the command's; if a signal kills the command, the same signal ends the wrapper.
    * Logs are written however the command ends. The record of the run next to them (`run-...`) survives even a power loss.
    * RSS is that of the command alone, without the monitor.
    * `save_dir` may be text. `interval=None` stands for 0.1.
    * The trade-off's baseline is the fp32 row at any position. A malformed file gives an error of one sentence. The output
      directory is created.

Not supported:
    * MemoryMonitor's private attributes and functions.
    * `get_data` before `start` returns two empty lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.nncf.memory_monitor import (
        MemoryMonitor,
        MemoryType,
        MemoryUnit,
        memory_monitor_context,
    )
    from otel_memwatch.compat.nncf.tradeoff import visualize

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "memory_monitor_context", "visualize"]

__getattr__ = lazy.names(
    __name__,
    {
        "MemoryMonitor": "memory_monitor",
        "MemoryType": "memory_monitor",
        "MemoryUnit": "memory_monitor",
        "memory_monitor_context": "memory_monitor",
        "visualize": "tradeoff",
    },
)

"""NNCF's memory monitor (`tools/memory_monitor.py`) and its visualiser of compression results.

Change the import: `from otel_memwatch.compat.nncf import MemoryMonitor, MemoryType` for `from memory_monitor import ...`;
the command: `python -m otel_memwatch.compat.nncf --log-dir DIR COMMAND...` for `python memory_monitor.py ...`, also with the
whole command line in quotation marks (`"python x.py --flag v"`, `"a && b"`), and
`otel-memwatch tradeoff RESULTS.csv --output-dir DIR` for `python visualize_compression_results.py ...`.

Works the same:
    MemoryType, MemoryUnit, MemoryMonitor (start, stop, get_data, save_memory_logs, save_memory_plot, as context manager),
    memory_monitor_context, visualize; names and format of the log files, the plots, the summary table, the Markdown
    table and the trade-off plot, the older spellings of options.

Differs, and why:
    * A monitor process beside the program samples, not a thread in it: no call that holds the interpreter stops it, and
      its memory is not part of the figures. Plots are drawn in a process of their own, for the same reason; what
      happens meanwhile is not part of the data.
    * The largest value is the true peak of this process, from the kernel's watermark, not the largest of the samples.
      The watermark is reset when a monitor starts and ends, which lowers this process's own `ru_maxrss`
      (`OTEL_MEMWATCH_EXACT=0` forbids it).
    * There are always two samples: a short block gives data, not an exception.
    * Monitors that run at the same time share one recording, and the interval of the first. Under `otel-memwatch wrap`
      they share the wrapped command's, whose whole tree is counted.
    * Arguments of a command that is not quoted as a whole arrive as they were written, without a shell. The command's
      exit code is handed on, death by a signal
      as that signal; logs are written however it ends, a record of the run beside them (`run-...`) even when the
      machine is switched off. Its RSS is that of the command alone: the monitor is not in it.
    * `save_dir` may be text. `interval=None` stands for 0.1.
    * The trade-off's baseline is the fp32 row wherever it stands; a malformed file is told in one sentence; the output
      directory is made.

Not supported:
    MemoryMonitor's private attributes and functions. `get_data` before `start` gives two empty lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.nncf.monitor import (
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
        "MemoryMonitor": "monitor",
        "MemoryType": "monitor",
        "MemoryUnit": "monitor",
        "memory_monitor_context": "monitor",
        "visualize": "tradeoff",
    },
)

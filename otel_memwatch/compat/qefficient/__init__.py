"""QEfficient's memory profiler (`scripts/memory_profiling` 2.0.0).

Change the import: `from otel_memwatch.compat.qefficient import QEffMemoryProfiler` for
`from scripts.memory_profiling import QEffMemoryProfiler`. Of any recorded run: `otel-memwatch report RUN --format
qefficient` and `otel-memwatch plot RUN --style phases`.

Works the same:
    QEffMemoryProfiler with its methods, properties, attributes and keywords, MetricsCollector, ProfilerConfig,
    ProfileSample, __version__;
    the text of the report, the four-panel figure, "MB" as 2**20 bytes, phases marked with mark_operation.

Differs, and why:
    * A monitor process beside the program samples, not a thread in it: no call that holds the interpreter stops it. The
      report and the figure are made in a process of their own; the program's matplotlib settings stay as they are.
    * A phase's memory delta is the difference of two readings at its marks; before, it was guessed from the number of
      samples, and billed to the wrong phase. Phases of equal name keep their own figures in the report; the
      dictionaries by name have the last one's.
    * The peak is the kernel's watermark of this process where that is above all samples.
    * Children are seen at every sample (`child_scan_interval` is not needed), and their I/O is counted, that of
      `subprocess.run()` included. I/O per phase is that of read and write calls, as before; what reached storage stands
      apart in a sample's storage_read_mb and storage_write_mb.
    * CPU is not smoothed, and is a share of the processors that the program may use.
    * Samples are read from the record when they are asked for, and again when it has grown. `samples` and the properties
      made from it are new lists at each access; `samples` cannot be changed, since that would change nothing. The peak that
      the kernel knows and no sample saw stands among them as one more.
    * `verbose=True` is heard without further configuration. Averages are over time, not over samples.

Not supported:
    QEffMemoryVisualizer raises on construction: `generate_memory_graph` draws. `monitor_thread` is always None. What
    `metrics_collector` reads is read at the moment of the call, in the program, and is no part of `samples`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.qefficient.profiler import (
        MetricsCollector,
        QEffMemoryProfiler,
        QEffMemoryVisualizer,
    )
    from otel_memwatch.compat.qefficient.samples import ProfilerConfig, ProfileSample

__version__ = "2.0.0"

__all__ = [
    "MetricsCollector",
    "ProfileSample",
    "ProfilerConfig",
    "QEffMemoryProfiler",
    "QEffMemoryVisualizer",
    "__version__",
]

__getattr__ = lazy.names(
    __name__,
    {
        "MetricsCollector": "profiler",
        "ProfileSample": "samples",
        "ProfilerConfig": "samples",
        "QEffMemoryProfiler": "profiler",
        "QEffMemoryVisualizer": "profiler",
    },
)

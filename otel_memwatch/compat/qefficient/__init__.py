"""QEfficient's memory profiler (`scripts/memory_profiling` 2.0.0).

Change the import: `from otel_memwatch.compat.qefficient import QEffMemoryProfiler` for
`from scripts.memory_profiling import QEffMemoryProfiler`. For any recorded run, use `otel-memwatch report RUN --format
qefficient` and `otel-memwatch plot RUN --style phases`.

Works the same:
    * QEffMemoryProfiler with its methods, properties, attributes and keywords.
    * MetricsCollector, ProfilerConfig, ProfileSample, __version__.
    * The text of the report, the four-panel figure, "MB" as 2**20 bytes, phases marked with mark_operation.

Differs, and why:
    * A separate monitor process samples, not a thread of the program. A call that holds the interpreter does not stop it.
    * A separate process makes the report and the figure. The program's matplotlib settings do not change.
    * A phase's memory delta is the difference of two readings at its marks. The older tool estimated it from the number of
      samples and charged it to the wrong phase.
    * Phases with equal names keep separate figures in the report. The dictionaries by name hold those of the last one.
    * The peak is the kernel's high-water mark of this process if that exceeds all samples.
    * Every sample includes the children (`child_scan_interval` is not needed). Their I/O is counted, including that of
      `subprocess.run()`.
    * I/O per phase counts read and write calls, as before. A sample's storage_read_mb and storage_write_mb count the bytes
      that reached storage.
    * CPU is not smoothed, and is a share of the processors that the program may use.
    * Each access reads the samples from the record, and again if it has grown. `samples` and the properties made from it
      are new lists at each access. `samples` is read-only, because a change would have no effect.
    * A kernel peak that no sample caught is one additional sample.
    * `verbose=True` prints without further configuration. Averages are over time, not over samples.

Not supported:
    * QEffMemoryVisualizer raises on construction: `generate_memory_graph` draws.
    * `monitor_thread` is always None.
    * `metrics_collector` reads its values during the call, in the program. They are not part of `samples`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.qefficient.profile_samples import (
        MetricsCollector,
        ProfilerConfig,
        ProfileSample,
    )
    from otel_memwatch.compat.qefficient.profiler import QEffMemoryProfiler, QEffMemoryVisualizer

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
        "MetricsCollector": "profile_samples",
        "ProfileSample": "profile_samples",
        "ProfilerConfig": "profile_samples",
        "QEffMemoryProfiler": "profiler",
        "QEffMemoryVisualizer": "profiler",
    },
)

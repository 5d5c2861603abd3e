"""Derive a run's figures from its raw record: peaks with their certainty, totals, operations, endings.

`RunAggregator` adds up samples and process records while the run is recorded; `load` gives a recorded `Run`. Importing this
package imports nothing else: a monitor needs only the aggregator until the run has ended.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.run.aggregate import RunAggregator
    from otel_memwatch.run.ending import describe_end
    from otel_memwatch.run.recorded_run import RecordedRun, load
    from otel_memwatch.run.results import OperationFigures, Peaks, ProcessFigures

__all__ = [
    "OperationFigures",
    "Peaks",
    "ProcessFigures",
    "RecordedRun",
    "RunAggregator",
    "describe_end",
    "load",
]

__getattr__ = lazy.names(
    __name__,
    {
        "OperationFigures": "results",
        "Peaks": "results",
        "ProcessFigures": "results",
        "RecordedRun": "recorded_run",
        "RunAggregator": "aggregate",
        "describe_end": "ending",
        "load": "recorded_run",
    },
)

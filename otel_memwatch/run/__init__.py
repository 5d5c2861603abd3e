"""From the raw record to figures: peaks with their certainty, totals, operations, endings.

`Tally` folds ticks and process records while the run is recorded; `load` gives a recorded `Run`. Importing this package
imports nothing else: a monitor needs the tally only, until the run has ended.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.run.aggregate import Tally
    from otel_memwatch.run.ending import describe_end
    from otel_memwatch.run.recorded_run import RecordedRun, load
    from otel_memwatch.run.results import OperationFigures, Peaks, ProcessFigures

__all__ = ["OperationFigures", "Peaks", "ProcessFigures", "RecordedRun", "Tally", "describe_end", "load"]

__getattr__ = lazy.names(
    __name__,
    {
        "OperationFigures": "results",
        "Peaks": "results",
        "ProcessFigures": "results",
        "RecordedRun": "recorded_run",
        "Tally": "aggregate",
        "describe_end": "ending",
        "load": "recorded_run",
    },
)

"""From the raw record to figures: peaks with their certainty, totals, operations, endings.

`Tally` folds ticks and process records while the run is recorded; `load` gives a recorded `Run`. Importing this package
imports nothing else: a monitor needs the tally only, until the run has ended.
"""

from __future__ import annotations

from otel_memwatch.runtime import lazy
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis.ending import describe_end
    from otel_memwatch.analysis.results import OperationFigures, Peaks, ProcessFigures
    from otel_memwatch.analysis.run import RecordedRun, load
    from otel_memwatch.analysis.tally import Tally

__all__ = ["OperationFigures", "Peaks", "ProcessFigures", "RecordedRun", "Tally", "describe_end", "load"]

__getattr__ = lazy.names(
    __name__,
    {
        "OperationFigures": "results",
        "Peaks": "results",
        "ProcessFigures": "results",
        "RecordedRun": "run",
        "Tally": "tally",
        "describe_end": "ending",
        "load": "run",
    },
)

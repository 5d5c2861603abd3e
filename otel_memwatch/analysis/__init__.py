"""From the raw record to figures: peaks with their certainty, totals, operations, endings.

`Tally` folds ticks and process records while the run is recorded; `load` gives a recorded `Run`.
"""

from otel_memwatch.analysis.ending import describe_end
from otel_memwatch.analysis.figures import OperationFigures, Peaks, ProcessFigures
from otel_memwatch.analysis.run import Run, load
from otel_memwatch.analysis.tally import Tally

__all__ = ["OperationFigures", "Peaks", "ProcessFigures", "Run", "Tally", "describe_end", "load"]

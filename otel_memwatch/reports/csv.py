"""CSV with a row for each sample and a column for each series.

* First column: seconds since the start of the run.
* Second column: Unix seconds.
* Other columns: metric, attributes and unit, for example `memwatch.tree.disk.io{disk.io.direction=read} [By]`.

An empty cell is "unknown".
"""

from __future__ import annotations

import csv
import io

from otel_memwatch.catalog import METRICS
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from otel_memwatch.model import Column
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

TIME, WALL = "time [s]", "unix time [s]"

_ROWS_AT_ONCE = 1000


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the rows as they are read: a day of samples takes no more memory than a second."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([TIME, WALL, *(clean(header(column)) for column in run.record.columns)])
    started, offset = run.started, run.started_wall - run.started
    for row, (time, values) in enumerate(run.record.sample_values()):
        wall = f"{time + offset:.4f}" if run.started_wall else ""
        writer.writerow([f"{time - started:.4f}", wall, *values])
        if row % _ROWS_AT_ONCE == 0:
            _flush(lines, out)
    _flush(lines, out)


def header(column: Column) -> str:
    """Return the name of a series' column."""
    metric = METRICS.get(column.metric)
    return column.series + (f" [{metric.unit}]" if metric else "")


def _flush(lines: io.StringIO, out: BinaryIO) -> None:
    out.write(lines.getvalue().encode("utf-8", "backslashreplace"))
    lines.seek(0)
    lines.truncate()

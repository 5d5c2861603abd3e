"""Parquet file with a row for each sample and a column for each series, for pandas, DuckDB or Spark.

Columns have the names of CSV, without units. Needs the extra `parquet`.
"""

from __future__ import annotations

from otel_memwatch.catalog import METRICS
from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_ROWS_AT_ONCE = 20_000


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the rows in groups as they are read.

    The file's metadata holds run.json under the key "memwatch", without arguments of the command.
    """
    try:
        import pyarrow  # noqa: ICN001 - an extra
        from pyarrow import parquet
    except ImportError:
        raise Unavailable("Parquet needs pyarrow.", "pip install 'otel-memwatch[parquet]'") from None
    integers = {name for name, metric in METRICS.items() if metric.integer}
    schema = pyarrow.schema(
        [("time", pyarrow.float64()), ("wall", pyarrow.timestamp("us", tz="UTC"))]
        + [
            (column.series, pyarrow.int64() if column.metric in integers else pyarrow.float64())
            for column in run.record.columns
        ],
        metadata={"memwatch": strict_json.dumps({**run.info, "command": [public_name(run.command)]})},
    )
    started, offset = run.started, run.started_wall - run.started
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        rows: list[tuple[Any, ...]] = []
        for time, values in run.record.sample_values():
            rows.append((time - started, int((time + offset) * 1e6), *values))
            if len(rows) >= _ROWS_AT_ONCE:
                writer.write_table(_table(rows, schema, pyarrow))
                rows = []
        writer.write_table(_table(rows, schema, pyarrow))


def _table(rows: list[tuple[Any, ...]], schema: Any, pyarrow: Any) -> Any:
    arrays = []
    for index, field in enumerate(schema):
        values = [row[index] for row in rows]
        if pyarrow.types.is_integer(field.type):
            values = [None if value is None else int(value) for value in values]
        arrays.append(pyarrow.array(values, field.type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)

"""Limit with full speed that `advise --trade` found, kept in the directory of the run with the command that it repeated."""

from __future__ import annotations

import os

from otel_memwatch.record.fields import mapping, whole
from otel_memwatch.record.format import FILE_MODE, SCHEMA, TRADE_FILE
from otel_memwatch.record.jsonl import parse
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.user_files import read_file, replace_file
from otel_memwatch.text import count
from otel_memwatch.wings.advice.recommendation import FULL_SPEED, MIB, mebibytes
from otel_memwatch.wings.advice.sizes import LEAST_REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.advice.bisection import Knee
    from otel_memwatch.wings.advice.recommendation import Advice
    from otel_memwatch.wings.index.indexed_run import IndexedRun

_MAX_BYTES = 4096


def keep(row: IndexedRun, knee: Knee, runs: int) -> None:
    """Write a knee that was found into the directory of the run. Raises `OSError`."""
    enough, less = (None if limit is None else limit * MIB for limit in knee)
    document = strict_json.dumps({"schema": SCHEMA, "enough": enough, "less": less, "runs": runs})
    replace_file(os.path.join(row.path, TRADE_FILE), document.encode(), mode=FILE_MODE)


def with_measured(advice: Advice, rows: Sequence[IndexedRun], beside: int) -> Advice:
    """Return the advice with the full speed that the newest measurement among the runs found.

    Memory that grows with the input is left as it is: a measurement is for one input. `beside`: bytes for the monitor.
    """
    if advice.memory is None or advice.minimum is None or advice.line is not None or advice.different:
        return advice
    for row in reversed(rows):
        found = _read(row)
        if found is not None:
            break
    else:
        return advice
    enough, runs = found
    memory = max(enough + beside, advice.minimum, LEAST_REQUEST)
    note = f"{FULL_SPEED} was measured: {mebibytes(enough)} MiB suffice ({count(runs, 'run')} of --trade)"
    return advice._replace(
        memory=memory, full_speed=memory, files=memory - advice.minimum,
        notes=(*(one for one in advice.notes if not one.startswith(FULL_SPEED)), note),
    )  # fmt: skip


def _read(row: IndexedRun) -> tuple[int, int] | None:
    """Return the limit that sufficed in bytes, and the number of runs; `None`: the run has no measurement."""
    try:
        document = mapping(parse(read_file(os.path.join(row.path, TRADE_FILE), _MAX_BYTES)))
    except (OSError, ValueError):
        return None
    enough, runs = whole(document.get("enough")), whole(document.get("runs"))
    return (enough, runs) if enough and runs else None

"""Making of a row of the run index: from its `run.json`, or from its samples if that has no figures.

=============  ==================================================================================================
state          figures
=============  ==================================================================================================
finished       from the monitor, written at the end
incomplete     computed from the samples, as for a report; cached, because the record no longer grows
running        lower bounds from the last samples; never cached
broken         none; `error` says why
=============  ==================================================================================================
"""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError
from otel_memwatch.model import Certainty
from otel_memwatch.record.command_key import command_key
from otel_memwatch.record.fields import number, whole
from otel_memwatch.record.format import RUN_FILE, SCHEMA, SEGMENTED_SCHEMA
from otel_memwatch.record.git_head import commit_of
from otel_memwatch.record.open import read_info
from otel_memwatch.record.reader import Record
from otel_memwatch.run.asked import asked
from otel_memwatch.run.figures import FIGURES, number_of, system_of
from otel_memwatch.run.recorded_run import RecordedRun, load
from otel_memwatch.runtime.fast_json import dumps
from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import Any
from otel_memwatch.truth.cgroup import is_charged
from otel_memwatch.wings.index.indexed_run import IndexedRun


def row_of(path: str) -> IndexedRun:
    """Return the row of one run directory, read now."""
    try:
        run = _finished_run(path) or load(path)  # raises with the reason
        return _running(run, path) if run.state == "running" else row_of_ended(run, path)
    except RunError as error:
        name, why = os.path.basename(os.path.abspath(path)), _storable(error.message)
    try:
        changed = number(os.stat(path).st_mtime) or 0.0
    except OSError:
        changed = 0.0
    return IndexedRun(path, name, "broken", why, started=changed)


def row_of_finished(path: str) -> IndexedRun | None:
    """Return the row of a run that has finished, from its `run.json` alone; `None` for any other run."""
    try:
        run = _finished_run(path)
        return None if run is None else row_of_ended(run, path)
    except RunError:
        return None


def _finished_run(path: str) -> RecordedRun | None:
    """Return a run whose `run.json` has all figures of the row, without a look at its directory; `None` for any other."""
    try:
        info = read_info(f"{path}/{RUN_FILE}")
    except RunError:
        return None
    run = RecordedRun(Record(path, info))
    known = run.fields.schema in (SCHEMA, SEGMENTED_SCHEMA) and run.state == "finished" and "peaks" in info
    return run if known else None


_INDEXED = tuple((row.field, row.of, row.is_whole) for row in FIGURES if row.field)


def row_of_ended(run: RecordedRun, path: str) -> IndexedRun:
    """Return the row of a run that does not go on."""
    ending, tree, process, request = run.ending, run.peaks.tree, run.peaks.process, asked(run)
    how = tree.how if tree else None
    figures: dict[str, Any] = {}
    for field, figure_of, is_whole in _INDEXED:
        value = number_of(figure_of(run))
        figures[field] = whole(value) if is_whole or value is None else round(value, 6)
    return IndexedRun(
        **_described(run, path),
        exit_code=ending.exit_code,
        signal=ending.signal,
        oom_kills=ending.oom_kills,
        reason=_storable(ending.reason),
        verdict=_storable(run.verdict) if run.verdict else None,
        low=tree.low if tree else None,
        high=tree.high if tree else None,
        certainty=tree.certainty.value if tree else None,
        how=_storable(how) if how else None,
        charged=int(is_charged(tree)),
        excluded=tree.excluded_bytes if tree else 0,
        process_low=process.low if process else None,
        process_high=process.high if process else None,
        swap=run.peaks.swap.bytes if run.peaks.swap else None,
        file_bytes=run.file_bytes,
        files_beside_peak=run.files_beside_peak,
        processes_high=run.fields.processes_high,
        files=run.fields.files.bytes,
        read_chars=whole(run.totals.get("read_chars")),
        write_chars=whole(run.totals.get("write_chars")),
        starved=run.stalls.memory,
        short=run.stalls.short_bytes,
        unwritten=run.stalls.unwritten_bytes,
        asked=request.memory,
        asked_cores=request.cores,
        predicted=whole(run.predicted.get("memory")),
        **figures,
    )


def _running(run: RecordedRun, path: str) -> IndexedRun:
    from otel_memwatch.wings.index.progress import progress

    so_far = progress(run.path)
    return IndexedRun(
        **_described(run, path),
        seconds=None if so_far.time is None else max(0.0, round(so_far.time - run.started, 6)),
        reason="still running",
        memory=so_far.at_least,
        low=so_far.at_least,
        certainty=None if so_far.at_least is None else Certainty.INTERVAL.value,
        cpu=so_far.cpu_seconds,
    )


def _described(run: RecordedRun, path: str) -> dict[str, Any]:
    """Return the fields of the row that are known when a run starts."""
    fields, host, group = run.fields, run.fields.host, run.fields.group
    tags = {_storable(name): _storable(value) for name, value in run.tags.items()}
    command, key = _command(run.command)
    return {
        "path": path,
        "id": _storable(run.id),
        "state": run.state,
        "name": None if run.name is None else _storable(run.name),
        "tags_json": dumps(tags) if tags else "{}",
        "command_json": command,
        "key": key,
        "cwd": _storable(run.cwd) or None,
        "host": _storable(host.name or "") or None,
        "system": _storable(system_of(host)),
        "cpus": host.cpus,
        "host_memory": host.memory_bytes,
        "host_swap": host.swap_bytes,
        "own_cgroup": int(bool(fields.own_cgroup)),
        "mode": _storable(run.mode),
        "by": None if fields.measured_by is None else _storable(fields.measured_by),
        "started": run.started_wall,
        "limit": run.limits.get("cgroup_bytes"),
        "input_bytes": fields.input_bytes,
        "group": None if group.group is None else _storable(group.group),
        "rank": group.rank,
        "span": run.trace.get("span_id"),
        "parent": run.trace.get("parent_span_id"),
        "commit": _storable(commit_of(run.info)) or None,
    }


@lru_cache(100)
def _command(words: tuple[str, ...]) -> tuple[str, str]:
    """Return a command as JSON, and its key; many runs have the same command."""
    return dumps(words), _storable(command_key(words))


def _storable(value: str) -> str:
    """Escape undecodable bytes of a name, which no database accepts."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")

"""Completes the record of a run whose target has ended and whose thread has recorded all that it could."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence

from otel_memwatch.errors import RunError
from otel_memwatch.monitor.rendering import CompletedRecord
from otel_memwatch.monitor.run_info import gpu_fields, health_fields, moment
from otel_memwatch.record.format import FINISHED
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis.curves import DrawnCurves
    from otel_memwatch.model import Ending, ProcessRecord, RecordedOperation
    from otel_memwatch.monitor.recording import RunRecording
    from otel_memwatch.record.operation_index import OperationTable
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.writer import RunWriter


_CATCHING_UP_SECONDS = 0.3
"""Time that telemetry may read operations on after the end: a burst may have left more of them than can be delivered."""


def complete(recording: RunRecording, end: Callable[[], Ending], ended: float) -> CompletedRecord | None:
    """Writes the end of the run into the record and gives telemetry the final figures.

    `end` words how the target ended; it is called when the last figures of all processes are known. `None`: the recording
    came to no tally, so that there are no figures; how the run ended has been written all the same.
    """
    writer = recording.writer
    if recording.folding.tally is None:
        write_end(writer, end(), ended)
        return None
    recording.tree.finish(time.monotonic())
    ending = end()
    writer.check()
    lines, operations = _operations(recording)
    from otel_memwatch.analysis.attribution import TabledOperations

    tally = recording.folding.tally  # with the processes that `finish` has recorded just now
    tally.boundaries(lines)
    _note_missing_ticks(recording)
    peaks = tally.peaks(TabledOperations(operations), whole=recording.watched_to_the_end)
    if recording.limit is not None:
        peak = None if peaks.tree is None else peaks.tree.bytes
        writer.note(limit=recording.limit.verdict(operations, _processes(recording), peak))
    writer.update(
        state=FINISHED,
        ended=moment(ended),
        exit=ending._asdict(),
        peaks=peaks.to_json(),
        totals=tally.totals(),
        quality=tally.quality(),
        sources={**writer.info["sources"], **health_fields(recording.sampler)},
        gpus=gpu_fields(recording.sources),
    )
    _deliver(recording, ending, ended, list(operations))
    curves = recording.folding.curves
    drawn = None if curves is None else curves.drawn(all_ended=not tally.processes.living)
    completed = _written(writer, drawn)
    writer.close()
    return completed


def write_end(writer: RunWriter, ending: Ending, ended: float) -> None:
    """Writes only how a run ended whose recording never came about. Its state stays "running": it has no figures."""
    writer.update(ended=moment(ended), exit=ending._asdict())
    writer.close()


def _operations(recording: RunRecording) -> tuple[list[OperationLines], OperationTable]:
    """The operations that the target has marked; where their files have gone, those that were read before."""
    from otel_memwatch.record.open import read_run
    from otel_memwatch.record.operation_index import ListedOperations

    assert recording.follower is not None
    if recording.writer.in_place:
        with contextlib.suppress(RunError):
            record = read_run(recording.writer.path)
            return record.operation_lines, record.operation_table
    return recording.follower.lines(), ListedOperations(recording.follower.open_operations())


def _processes(recording: RunRecording) -> list[ProcessRecord]:
    """The records of the processes; none where their file has gone."""
    from otel_memwatch.record.open import read_run

    if recording.writer.in_place:
        with contextlib.suppress(RunError):
            return read_run(recording.writer.path).processes
    return []


def _note_missing_ticks(recording: RunRecording) -> None:
    """Notes from when on the record has no ticks although the run went on."""
    writer = recording.writer
    if recording.watched_to_the_end and not writer.missing:
        return
    started = float(writer.info["started"]["monotonic"])
    until = started if writer.last_tick is None else writer.last_tick
    writer.note(recorded_until=until)
    if writer.missing:
        since = max(0.0, until - started)
        writer.note_mark(
            f"{writer.missing} ticks are missing, from {since:.1f} s on: peaks and totals are from memory"
        )


def _deliver(
    recording: RunRecording, ending: Ending, ended: float, operations: Sequence[RecordedOperation]
) -> None:
    """Gives telemetry the final figures; what it could not deliver is marked in the record."""
    telemetry = recording.telemetry
    if telemetry is None or not telemetry.active:
        return
    from otel_memwatch.analysis import Peaks
    from otel_memwatch.monitor.telemetry import Ended

    until = time.monotonic() + _CATCHING_UP_SECONDS
    while recording.read_operations() and time.monotonic() < until:
        pass
    peaks = Peaks.from_json(recording.writer.info["peaks"])
    still_open = [operation for operation in operations if operation.status == "open"]
    closed = [operation for operation in operations if operation.status != "open"]
    for problem in telemetry.finish(Ended(ended, ending, peaks, still_open, closed)):
        recording.writer.mark(problem)


def _written(writer: RunWriter, curves: DrawnCurves | None) -> CompletedRecord:
    """What reports are made of, with a mark where the record does not hold the end of the run."""
    in_place = writer.in_place
    directory = writer.path if in_place else writer.path / f"lost-{os.getpid()}"
    if not writer.written and not writer.update():  # tried again, since there may be space by now
        writer.note_mark("the end could not be recorded" if in_place else "the record is lost")
    # As a reader of the file would have it: tuples become lists, keys text.
    return CompletedRecord(directory, json.loads(json.dumps(writer.info)), curves)

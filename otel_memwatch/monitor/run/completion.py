"""Completion of the record, after the target has ended and the sampling thread has stopped.

Steps of `wrap` between the end of the command and the prompt, in order. `complete` has those from the ends of processes to the
curves. `RunResources.finish` (wrap.py) calls `Monitor.finish`, which calls `complete` and then `render` (workers/rendering.py).

| step | code | ms |
| --- | --- | --- |
| witness | `Target.wait` kills and reaps it; with a scope, the last step does | 2.0 |
| stop the guard | `Guard.finish`, with --limit and its like: until all killed processes are dead, at most 5 s | - |
| stop the captures | `StackWorker.finish`, with --stacks | - |
| last sample | `Monitor.finish` pauses telemetry and waits for the sampling thread | 0.6 |
| ends of processes | `ProcessTree.finish`: the last figures of all | 0.3 |
| ending | `RunResources._ending`: reason, with OOM kills and peak of the cgroup | 1.5 |
| operations | `_operations`: the rest of the target's operations | 0.1 |
| figures | `RunAggregator.peaks`, `.totals` | 0.3 |
| verdict on the limit | `HardLimit.verdict`, with --limit: reads the process records again | - |
| growth | `RunRecording.judge_growth`: repeats that keep memory | - |
| run.json | `RunWriter.update`: state, exit, peaks, totals | 1.3 |
| last event | `Guard.write_end`, with --events | - |
| telemetry | `_deliver`: at most 1.8 s, but up to 20 s while its libraries load | - |
| curves | `Curves.drawn`, `_written`, `_known` | 1.7 |
| notes in report and page | `DetachedReport`, if a detached process makes both, see `may_detach` | 0.3 |
| verdict on the budgets | `rendering._judge`, with --budget | - |
| report and page | `rendering.make`, if no detached process makes them | - |
| summary | `rendering._summary`, with the runs before this one | 3.3 |
| more summaries | `rendering._summaries_elsewhere`: files, CI, termination message | - |
| picture, logs | `rendering._draw`, `write_files`, with --plot or --log-dir | - |
| trackers | `rendering.track`, with --tracker: at most 2 s | - |
| last scrape | `Telemetry.linger`, with --linger: at most its seconds | - |
| upload | `Uploader.finish`, with --upload: at most 60 s | - |
| container | `ContainerRecorder.finish`, if the command started one | - |
| resources | `RunResources.close`: witness of a scope, port, scope, cgroup | 0.5 |
| detached process | `DetachedReport.start`: a fork | 0.5 |
| exit code | `record_run`, `end_like` | - |

Milliseconds are the minimum of twelve runs of a command of 1.1 s with two processes, on two processors shared with other
work. The median of the whole was 78 ms there. `-`: skipped by default.

The steps from the verdict on the budgets to the logs run in a worker process if one of them needs numpy or matplotlib.
"""

from __future__ import annotations

import os
import time

from otel_memwatch.errors import RunError
from otel_memwatch.monitor.recording.run_info import gpu_fields, health_fields, moment
from otel_memwatch.monitor.workers.rendering import CompletedRecord
from otel_memwatch.record.format import FINISHED, TRACES_OTLP_FILE
from otel_memwatch.runtime.fast_json import dumps, loads
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.model import Ending, ProcessRecord, RecordedOperation
    from otel_memwatch.monitor.recording.recording import RunRecording
    from otel_memwatch.record.writer import RunWriter
    from otel_memwatch.run.attribution import Candidates
    from otel_memwatch.run.process_bounds import ProcessBounds
    from otel_memwatch.run.recorded_run import KnownOperations


class _Operations(NamedTuple):
    """Operations that the target has marked."""

    sized: Candidates | None
    """Operations to attribute peaks to; `None`: none."""
    still_open: Sequence[RecordedOperation]
    to_export: int
    """Number of closed operations that the program does not export itself."""
    read_again: bool
    """True if the record holds more than we followed: spans that the program exported into it."""


def complete(recording: RunRecording, end: Callable[[], Ending], ended: float) -> CompletedRecord | None:
    """Write the end of the run into the record and send the final figures to telemetry.

    Return `None` if the recording has no aggregator, hence no figures. The end of the run is written in any case.

    Args:
        recording: the recording. Its thread has stopped.
        end: describes how the target ended. It is called once the last figures of all processes are known.
        ended: monotonic seconds of the end.

    """
    writer = recording.writer
    if recording.batcher.aggregator is None:
        write_end(writer, end(), ended)
        return None
    recording.tree.finish(time.monotonic())
    ending = end()
    writer.check()
    operations = _operations(recording)
    aggregator = recording.batcher.aggregator  # includes the processes that `finish` has just recorded
    _note_missing_ticks(recording)
    peaks = aggregator.peaks(operations.sized, whole=recording.watched_to_the_end)
    guard = recording.guard
    if guard is not None and guard.limit is not None:
        peak = None if peaks.tree is None else peaks.tree.bytes
        writer.note(limit=guard.limit.verdict(operations.still_open, _processes(recording), peak))
    if guard is not None and guard.verdict is not None:
        writer.note(verdict=guard.verdict)
    if aggregator.heaps:
        from otel_memwatch.run.heaps import written_heap

        writer.note(heaps=[written_heap(one) for one in aggregator.heaps])
    writer.update(
        state=FINISHED,
        ended=moment(ended),
        exit=ending._asdict(),
        peaks=peaks.to_json(),
        totals=aggregator.totals(),
        file_bytes=aggregator.processes.most_file,
        files_beside_peak=aggregator.files_beside_peak(),
        processes_high=aggregator.processes_high(),
        files=None if recording.details is None else recording.details.files.to_json(),
        quality=aggregator.quality(),
        stalls=aggregator.stalls().to_json(),
        findings=[one._asdict() for one in recording.judge_growth(job=ending.exit_code == 0)],
        sources={**writer.info["sources"], **health_fields(recording.sampler)},
        gpus=gpu_fields(recording.sources),
    )
    if guard is not None:
        guard.write_end(ending, None if peaks.tree is None else peaks.tree.to_json())
    _deliver(recording, ending, ended, operations)
    curves = recording.batcher.curves
    drawn = None if curves is None else curves.drawn(all_ended=not aggregator.processes.living)
    directory, info = _written(writer)
    writer.close()
    if operations.read_again or "recorded_until" in info:
        return CompletedRecord(directory, info, drawn, None, limitless=False)
    known = _known(recording, operations)
    return CompletedRecord(directory, info, drawn, known, limitless=recording.limitless)


def write_end(writer: RunWriter, ending: Ending, ended: float) -> None:
    """Write the end of a run without a recording. Its state stays "running", since it has no figures."""
    writer.update(ended=moment(ended), exit=ending._asdict())
    writer.close()


def _operations(recording: RunRecording) -> _Operations:
    """Read the operations that the target has written since the last read."""
    followed = recording.followed
    while followed.read():
        pass
    followed.read(last=True)
    still_open = () if followed.follower is None else followed.follower.open_operations()
    so_far = followed.aggregator
    path = recording.writer.path
    if recording.writer.in_place and os.path.isfile(f"{path}/{TRACES_OTLP_FILE}"):
        from otel_memwatch.record.open import open_record
        from otel_memwatch.run.attribution import Candidates

        table = open_record(path, recording.writer.info).operation_table
        to_export = sum(not one.exported for one in table)
        return _Operations(Candidates(table), still_open, to_export, read_again=True)
    if so_far is None:
        return _Operations(None, still_open, 0, read_again=False)
    sized = so_far.candidates(_at_their_last(recording, still_open))
    return _Operations(sized, still_open, so_far.to_export, read_again=False)


def _at_their_last(
    recording: RunRecording, still_open: Sequence[RecordedOperation]
) -> Sequence[RecordedOperation]:
    """Return the open operations, with figures of samples and process ends after their last boundary.

    A program killed for its memory leaves such an operation. Its lines alone show only the memory at its start.
    """
    history, aggregator = recording.batcher.history, recording.batcher.aggregator
    if not still_open or history is None or aggregator is None:
        return still_open
    from otel_memwatch.run.operations import OperationContext, with_last_figures

    processes: dict[int, list[ProcessBounds]] = {}
    for process in aggregator.processes.recent():
        processes.setdefault(process.pid, []).append(process)
    now = time.monotonic()
    series = history.series(all_ended=not aggregator.processes.living)
    context = OperationContext(aggregator.conditions, series, processes, None, False, now, now)
    return [with_last_figures(operation, context) for operation in still_open]


def _known(recording: RunRecording, operations: _Operations) -> KnownOperations | None:
    """Return the operations for reports, which then need not read them again; `None`: they began too late for that."""
    from otel_memwatch.run.recorded_run import KnownOperations

    history, aggregator, follower = (
        recording.batcher.history,
        recording.batcher.aggregator,
        recording.followed.follower,
    )
    assert aggregator is not None
    if follower is None:
        return KnownOperations(None, (), (), None, ())
    if history is None:
        return None
    return KnownOperations(
        recording.followed.aggregator,
        operations.still_open,
        follower.lines(),
        history.series(all_ended=not aggregator.processes.living),
        follower.damage(),
    )


def _processes(recording: RunRecording) -> list[ProcessRecord]:
    """Return the process records; none if their file is gone."""
    from otel_memwatch.record.open import read_run

    if recording.writer.in_place:
        with suppress(RunError):
            return read_run(recording.writer.path).processes
    return []


def _note_missing_ticks(recording: RunRecording) -> None:
    """Note a missing last sample of the cgroup, and the time from which the record lacks samples although the run continued."""
    writer = recording.writer
    if recording.lost_group():
        writer.note_mark("the cgroup was removed before its last reading, so its peak has no upper bound")
    if recording.watched_to_the_end and not writer.missing:
        return
    started = float(writer.info["started"]["monotonic"])
    until = started if writer.last_tick is None else writer.last_tick
    writer.note(recorded_until=until)
    if writer.missing:
        from otel_memwatch.text import count

        since = max(0.0, until - started)
        missing = f"{count(writer.missing, 'sample')} could not be written, from {since:.1f} s on"
        writer.note_mark(f"{missing}; peaks and totals include them")


def _deliver(recording: RunRecording, ending: Ending, ended: float, operations: _Operations) -> None:
    """Send the final figures to telemetry; mark undelivered ones in the record."""
    telemetry = recording.telemetry
    if telemetry is None or not telemetry.active:
        return
    from otel_memwatch.monitor.telemetry import RunEnd
    from otel_memwatch.run.results import Peaks
    from otel_memwatch.run.stalls import Stalls

    info = recording.writer.info
    peaks, stalls = Peaks.from_json(info["peaks"]), Stalls.of(info["stalls"]).by_resource()
    final = RunEnd(ended, ending, peaks, stalls, operations.still_open, operations.to_export)
    for problem in telemetry.finish(final):
        recording.writer.mark(problem)


def _written(writer: RunWriter) -> tuple[str, Mapping[str, Any]]:
    """Return directory and `run.json` for the reports, with a mark if the record lacks the end of the run."""
    in_place = writer.in_place
    directory = writer.path if in_place else f"{writer.path}/lost-{os.getpid()}"
    if not writer.written and not writer.update():  # tried again, since there may be space by now
        writer.note_mark("the end could not be recorded" if in_place else "the record is lost")
    # Convert as a reader of the file gets it: tuples become lists, keys text.
    return directory, loads(dumps(writer.info))

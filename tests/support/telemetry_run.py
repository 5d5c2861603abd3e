"""A run as telemetry sees it, without a target: columns, a snapshot, health, an end."""

from __future__ import annotations

import time
from types import SimpleNamespace

from otel_memwatch.catalog import METRICS, Instrument
from otel_memwatch.model import Column, Ending, Peak, RecordedOperation, Snapshot
from otel_memwatch.monitor.telemetry import RunEnd
from otel_memwatch.record.follower import PollResult
from otel_memwatch.run import Peaks

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"

_VALUES = {
    "cpu.mode": "user",
    "disk.io.direction": "read",
    "system.paging.fault.type": "major",
    "process.context_switch.type": "voluntary",
    "memwatch.pressure.resource": "memory",
    "memwatch.pressure.stall_type": "some",
}

OWN = {
    "memwatch.tree.memory.peak", "memwatch.tree.memory.peak.high", "memwatch.tree.process.memory.peak",
    "memwatch.tree.process.memory.peak.high", "memwatch.run.end.time", "memwatch.operation.count", "memwatch.operation.time",
    "memwatch.operation.memory.peak.max", "memwatch.run.active", "memwatch.run.exit.code",
    "memwatch.operation.active", "memwatch.source.up", "memwatch.source.duration", "memwatch.source.failures",
    "memwatch.sampler.ticks", "memwatch.sampler.missed", "memwatch.export.failures", "memwatch.monitor.cpu.time",
    "memwatch.monitor.memory.usage",
}  # fmt: skip
"""Metrics that the monitor makes itself; all others come from columns."""


def all_columns():
    """A column for every metric of the catalogue that a source delivers."""
    return tuple(
        Column(row.name, tuple(sorted((name, _VALUES.get(name, "x")) for name in row.attributes)))
        for row in METRICS.values()
        if row.instrument is not Instrument.HISTOGRAM and row.name not in OWN
    )


def snapshot(columns, first=1000):
    """Values 1000, 1001 ... for the columns."""
    return Snapshot(time.monotonic(), time.time(), tuple(range(first, first + len(columns))))


def run_info(**more):
    """run.json as it is known at the start."""
    now, wall = time.monotonic(), time.time()
    return {
        "id": "a-run",
        "command": ["/usr/bin/train", "--secret=hunter2"],
        "target": {"pid": 4242, "start": now},
        "started": {"wall": wall, "monotonic": now},
        "host": {"name": "somewhere", "system": "Linux", "release": "6.1", "machine": "x86_64"},
        "trace": {"trace_id": TRACE, "span_id": SPAN, "parent_span_id": "00f067aa0ba902b7"},
        "resource": {"service.name": "train", "service.instance.id": "a-run-1"},
        **more,
    }


class Program:
    """A program that marks operations: followers get them as from the files of a run directory."""

    def __init__(self, closed=(), open_names=()):
        self.closed = list(closed)
        self.open = [operation(name, 10_000 + n, end=None) for n, name in enumerate(open_names)]

    def follow(self):
        """A follower that begins with the first operation."""
        return _Follower(self)

    def close(self, operations):
        """Close operations."""
        self.closed += operations


class _Follower:
    def __init__(self, program):
        self._program = program
        self._read = 0

    def poll(self):
        found = self._program.closed[self._read : self._read + 500]
        self._read += len(found)
        return PollResult(found, len(found), self._read < len(self._program.closed))

    def open_operations(self):
        return self._program.open


def health(up=True, failures=0):
    """The state of one source."""
    return {"process_tree": SimpleNamespace(up=up, seconds=0.5, failures=failures)}


def peaks(tree=300 << 20):
    """Peaks of a run."""
    return Peaks(
        main=Peak.exact(200 << 20), process=Peak.exact(210 << 20), tree=Peak.interval(tree, tree + (5 << 20))
    )


def operation(name="Compilation", number=1, start=None, seconds=0.5, span="1122334455667788", **more):
    """A closed operation."""
    start = time.monotonic() if start is None else start
    fields = {
        "name": name, "pid": 4242, "id": number, "start": start, "end": start + seconds, "status": "ok",
        "trace_id": TRACE, "span_id": span, "parent_span_id": SPAN, "peak": Peak.exact(150 << 20),
        "start_bytes": 100 << 20, "end_bytes": 120 << 20, "totals": {"cpu_seconds": 0.25},
    }  # fmt: skip
    return RecordedOperation(**{**fields, **more})


def finished(
    info,
    exit_code=0,
    signal=None,
    oom_kills=0,
    open_operations=(),
    reason="exit code 0",
    seconds=2.0,
    to_export=0,
):
    """The end of a run."""
    ending = Ending(exit_code, signal, oom_kills, reason)
    return RunEnd(
        info["started"]["monotonic"] + seconds, ending, peaks(), {}, tuple(open_operations), to_export
    )

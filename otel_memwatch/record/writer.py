"""Writes a run directory: one `write()` for every tick, nothing buffered, nothing overwritten.

A file that is complete at each line survives SIGKILL of the writer: the page cache belongs to the kernel.
A full disk ends the recording, never the run: the reader finds the mark, the person one line on stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from otel_memwatch.catalog import METRICS
from otel_memwatch.model import Column, ProcessRecord, Snapshot
from otel_memwatch.record.format import (
    FILE_MODE,
    PROCESSES_FILE,
    RESERVE_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SCHEMA,
)

_RESERVE_BYTES = 64 * 1024
"""Kept aside so that run.json can be written once more when the disk is full."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class RunWriter:
    """The only writer of a run directory's files, but for `operations-*.jsonl`.

    Args:
        path: the directory, made by `directory.create_directory`.
        on_trouble: called once, with one sentence, when the recording has to stop.
    """

    def __init__(self, path: Path, on_trouble: Callable[[str], None]) -> None:
        self.path = path
        self.stopped: str | None = None
        """Why nothing is recorded any more; `None` while all is well."""
        self._on_trouble = on_trouble
        self.info: dict[str, Any] = {"schema": SCHEMA, "marks": []}
        """What `run.json` holds."""
        self._descriptors: dict[str, int] = {}
        self._reserve()

    def _reserve(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            descriptor = os.open(self.path / RESERVE_FILE, _NEW_FILE, FILE_MODE)
            try:
                os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
            finally:
                os.close(descriptor)

    def update(self, **fields: Any) -> None:
        """Sets fields of `run.json` and replaces the file atomically."""
        self.info.update(fields)
        temporary = self.path / f".{RUN_FILE}.{os.getpid()}"
        text = json.dumps(self.info, indent=1, ensure_ascii=False) + "\n"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            try:
                _write_all(descriptor, text.encode("utf-8", "surrogateescape"))
            finally:
                os.close(descriptor)
            temporary.replace(self.path / RUN_FILE)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            self._stop(error)

    def mark(self, text: str) -> None:
        """Notes in `run.json` that something was wrong with the recording, and when."""
        self.info["marks"].append({"time": time.monotonic(), "text": text})
        self.update()

    def columns(self, columns: Sequence[Column]) -> None:
        """Declares the columns of the ticks that follow."""
        declared = [
            {
                "metric": column.metric,
                "unit": METRICS[column.metric].unit,
                "attributes": dict(column.attributes),
                "period": column.period,
            }
            for column in columns
        ]
        self._append(SAMPLES_FILE, compact({"schema": SCHEMA, "columns": declared}))

    def tick(self, snapshot: Snapshot) -> None:
        """Appends one tick; values that are not known at its end are left out."""
        values = list(snapshot.values)
        while values and values[-1] is None:
            values.pop()
        self._append(SAMPLES_FILE, compact([round(snapshot.time, 4), *values]))

    def process(self, record: ProcessRecord) -> None:
        """Appends what is known of a process."""
        known = {name: value for name, value in record._asdict().items() if value is not None}
        known["event"] = record.event.value
        self._append(PROCESSES_FILE, compact(known))

    def _append(self, name: str, line: str) -> None:
        if self.stopped is not None:
            return
        try:
            descriptor = self._descriptors.get(name)
            if descriptor is None:
                descriptor = self._descriptors[name] = os.open(self.path / name, _NEW_FILE, FILE_MODE)
            _write_all(descriptor, (line + "\n").encode("utf-8", "surrogateescape"))
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        """Ends the recording: tells it once, and writes the mark into the space kept aside for it."""
        if self.stopped is not None:
            return
        self.stopped = f"recording stopped: {self.path} cannot be written ({error.strerror})"
        self._on_trouble(self.stopped)
        with contextlib.suppress(OSError):
            (self.path / RESERVE_FILE).unlink()
        self.mark(self.stopped)

    def close(self) -> None:
        """Closes all files and gives the reserved space back."""
        for descriptor in self._descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._descriptors.clear()
        with contextlib.suppress(OSError):
            (self.path / RESERVE_FILE).unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    """Writes `data`; a short write (a disk that is filling up) is tried again and then raises."""
    while data:
        data = data[os.write(descriptor, data) :]

"""Writer of a run directory: one `write()` for every sample, nothing buffered, nothing overwritten.

A file that is complete at each line survives SIGKILL of the writer: the page cache belongs to the kernel.
A full disk ends the recording, never the run. The reader finds the mark, and the user sees one line on stderr. Later
samples stay only in the monitor's memory. Every `update` tries to write `run.json` again, in case space is available.
"""

from __future__ import annotations

import errno
import os
import time

from otel_memwatch.catalog import METRICS
from otel_memwatch.model import Column, ProcessRecord, Snapshot
from otel_memwatch.record.format import (
    FILE_MODE,
    PROCESSES_FILE,
    RESERVE_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SCHEMA,
    SEGMENT_BYTES,
    SEGMENTED_SCHEMA,
    TICK_DECIMALS,
)
from otel_memwatch.runtime.fast_json import encoder
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.record.sample_files import SegmentCompressor

_RESERVE_BYTES = 64 * 1024
"""Bytes reserved for one more write of run.json if the disk is full."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_encode = encoder(",", ":", ascii_only=False)
_encode_field = encoder(ascii_only=False)


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return _encode(value)


class RunWriter:
    """The only writer of a run directory's files, except `operations-*.jsonl`.

    Args:
        path: run directory, created by `monitor.run.run_directory`.
        on_trouble: called once, with one sentence, if the recording has to stop.
        segmented: close and compress segments of the samples.
    """

    def __init__(self, path: str, on_trouble: Callable[[str], None], *, segmented: bool = False) -> None:
        self.path = path
        self.stopped: str | None = None
        """Reason why the recording stopped; `None` while it continues."""
        self.written = False
        """True if `run.json` holds `info` as of the last `update`."""
        self.missing = 0
        """Samples that could not be written."""
        self.last_tick: float | None = None
        """Monotonic seconds of the last written sample."""
        self._on_trouble = on_trouble
        self.info: dict[str, Any] = {"schema": SCHEMA, "marks": []}
        """Content of `run.json`."""
        self._values: Sequence[Value] = ()
        self._text = "]"
        """Values of the last sample, and their text: that of a sample without a change is the same."""
        self._header = ""
        """The last declaration of columns."""
        self._open_bytes = 0
        """Size of the open file of samples, within a few bytes a sample."""
        self.segmented = segmented
        self._segments: SegmentCompressor | None = None
        """`None` before the first segment is closed."""
        self._descriptors: dict[str, int] = {}
        self._directory: int | None = None
        """Descriptor of the directory itself: a later replacement is not written to."""
        try:
            self._directory = os.open(path, _DIRECTORY)
            with suppress(OSError, AttributeError):
                descriptor = self._open(RESERVE_FILE, _NEW_FILE)
                try:
                    os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
                finally:
                    os.close(descriptor)
        except OSError as error:
            self._stop(error)

    @property
    def in_place(self) -> bool:
        """Return whether the path still names the directory."""
        if self._directory is None:
            return False
        try:
            named, ours = os.lstat(self.path), os.fstat(self._directory)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def check(self) -> bool:
        """Return whether the recording continues; stop it if the directory was removed or replaced."""
        if self.stopped is None and not self.in_place:
            self._stop(OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        return self.stopped is None

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, FILE_MODE, dir_fd=self._directory)

    def _unlink(self, name: str) -> None:
        if self._directory is not None:
            with suppress(OSError):
                os.unlink(name, dir_fd=self._directory)

    def note(self, **fields: Any) -> None:
        """Set fields of `run.json`, which the next `update` writes."""
        self.info.update(fields)

    def update(self, **fields: Any) -> bool:
        """Set fields of `run.json` and replace the file atomically; return whether that succeeded."""
        self.info.update(fields)
        self.written = False
        if self._directory is None:
            return False
        temporary = f".{RUN_FILE}.{os.getpid()}"
        # One field a line. With `indent`, json encodes in Python, which takes four times as long.
        lines = (f" {_encode_field(name)}: {_encode_field(value)}" for name, value in self.info.items())
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        try:
            self._unlink(temporary)
            descriptor = self._open(temporary, _NEW_FILE)
            try:
                _write_all(descriptor, text.encode("utf-8", "surrogateescape"))
            finally:
                os.close(descriptor)
            os.replace(temporary, RUN_FILE, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError as error:
            self._unlink(temporary)
            self._stop(error)
            return False
        self.written = True
        return True

    def mark(self, text: str) -> None:
        """Record a problem of the recording, and its time, in `run.json`."""
        self.note_mark(text)
        self.update()

    def note_mark(self, text: str) -> None:
        """Record a problem like `mark`, but leave the writing to the next `update`."""
        self.info["marks"].append({"time": time.monotonic(), "text": text})

    def columns(self, columns: Sequence[Column]) -> None:
        """Declare the columns of the following samples."""
        declared = [
            {
                "metric": column.metric,
                "unit": METRICS[column.metric].unit,
                "attributes": dict(column.attributes),
                "period": column.period,
            }
            for column in columns
        ]
        self._header = compact({"schema": SCHEMA, "columns": declared})
        self._append(SAMPLES_FILE, self._header)

    def tick(self, snapshot: Snapshot) -> None:
        """Append one sample; omit unknown values at its end."""
        if self.stopped is not None:
            self.missing += 1
            return
        line = f"[{round(snapshot.time, TICK_DECIMALS)}{self._text_of(snapshot.values)}"
        if not self._append(SAMPLES_FILE, line):
            self.missing += 1
            return
        self._added(snapshot.time, len(line) + 1)

    def _text_of(self, values: Sequence[Value]) -> str:
        """Return the line of a sample after its time."""
        if values != self._values:
            self._values = values
            known = len(values)
            while known and values[known - 1] is None:
                known -= 1
            self._text = f",{compact(values[:known])[1:]}" if known else "]"
        return self._text

    def repeated_line(self, values: Sequence[Value]) -> tuple[int, bytes]:
        """Return the descriptor of the samples' file, and the line of samples with these values after the time."""
        return self._descriptors[SAMPLES_FILE], f"{self._text_of(tuple(values))}\n".encode()

    def repeated(self, times: Sequence[float], unwritten: bytes) -> None:
        """Note samples with the line of `repeated_line`. They are written, except for these bytes of the last one."""
        if unwritten:
            try:
                _write_all(self._descriptors[SAMPLES_FILE], unwritten)
            except OSError as error:
                self._stop(error)
                self.missing += 1
                times = times[:-1]
        if times:
            # Their times differ by few characters, so the last line stands for all.
            line = f"[{round(times[-1], TICK_DECIMALS)}{self._text}\n"
            self._added(times[-1], len(times) * len(line))

    def _added(self, time: float, size: int) -> None:
        """Note the time of the last sample and the bytes of new samples; close a segment that is large enough."""
        self.last_tick = time
        self._open_bytes += size
        if self._segments is not None:
            self._segments.step()
        if self.segmented and self._open_bytes >= SEGMENT_BYTES:
            self._close_segment()

    def _close_segment(self) -> None:
        """Close the file of samples, and open the next one."""
        from otel_memwatch.record.sample_files import SegmentCompressor

        # Older versions must not read the last samples for all of them.
        if self._directory is None or not self.update(schema=SEGMENTED_SCHEMA):
            return
        if self._segments is None:
            self._segments = SegmentCompressor(self._directory)
        try:
            self._segments.close_segment()
        except OSError:
            self.segmented = False  # the file can still be appended to
            return
        os.close(self._descriptors.pop(SAMPLES_FILE))
        self._open_bytes = 0
        if self._append(SAMPLES_FILE, self._header):
            self._segments.begin()

    def process(self, record: ProcessRecord) -> None:
        """Append the known fields of a process."""
        known = {name: value for name, value in record._asdict().items() if value is not None}
        known["event"] = record.event.value
        self._append(PROCESSES_FILE, compact(known))

    def _append(self, name: str, line: str) -> bool:
        if self.stopped is not None:
            return False
        try:
            descriptor = self._descriptors.get(name)
            if descriptor is None:
                descriptor = self._descriptors[name] = self._open(name, _NEW_FILE)
            _write_all(descriptor, (line + "\n").encode("utf-8", "surrogateescape"))
        except OSError as error:
            self._stop(error)
            return False
        return True

    def _stop(self, error: OSError) -> None:
        """Stop the recording: call `on_trouble` once, and write the mark into the reserved space."""
        if self.stopped is not None:
            return
        reason = "it was removed or replaced" if error.errno == errno.ENOENT else error.strerror
        self.stopped = f"recording stopped: {self.path} cannot be written ({reason})"
        self._on_trouble(self.stopped)
        self._unlink(RESERVE_FILE)
        self.mark(self.stopped)

    def close(self) -> None:
        """Close all files and free the reserved space."""
        if self._segments is not None:
            self._segments.give_up()
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)
        self._descriptors.clear()
        self._unlink(RESERVE_FILE)
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def _write_all(descriptor: int, data: bytes) -> None:
    """Write `data`; a short write (disk almost full) is repeated and then raises."""
    while data:
        data = data[os.write(descriptor, data) :]

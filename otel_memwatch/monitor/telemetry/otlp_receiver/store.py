"""Spans from the target's own SDK, written into the run as operations.

Spans arrive after their end, so an operation's two lines are written together and contain no memory values. The
reader takes these from the samples.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from otel_memwatch.record.format import FILE_MODE, OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import open_regular
from otel_memwatch.record.operation_writer import (
    UNKNOWN_PEAK,
    closing_line,
    header_line,
    opening_line,
    opening_more,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

_SPAN = re.compile(rb'"span":\s*"([0-9a-f]{16})"')
_ERROR = 2
"""STATUS_CODE_ERROR."""

MAX_ATTRIBUTES = 64
"""Recorded attributes of one span."""

MAX_TEXT = 1024
"""Recorded characters of a name or a text."""

MAX_ROOTS = 128
"""Remembered root spans: the specification's limit for links of one span."""

MAX_RECENT = 1 << 14
"""Spans remembered as recorded: 32 batches of the SDKs' default size."""

MAX_PROCESSES = 1000
"""Processes with a file; spans of further processes are forwarded but not recorded."""


class ReceivedSpans:
    """Writer of `operations-otlp-<pid>.jsonl` files.

    Args:
        directory: run directory.
        pid: PID of the target; spans without a process in their resource belong to it.
        offset: Unix seconds minus monotonic seconds.

    """

    def __init__(self, directory: Path, pid: int, offset: float) -> None:
        self._directory = directory
        self._pid = pid
        self._offset = offset
        self._files: dict[int, _ProcessFile] = {}
        self._lock = threading.Lock()
        # A program sends a batch again if its endpoint, or the monitor in its place, rejected it: record it once.
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        self.roots: list[tuple[str, str]] = []
        """Trace and span ids of the first spans without a parent."""

    def record(self, resource_spans: Iterable[ResourceSpans]) -> int:
        """Record the spans and return their number. Raises `OSError` if they cannot be written."""
        recorded = 0
        with self._lock:
            for group in resource_spans:
                resource = {item.key: _value(item.value) for item in group.resource.attributes}
                named = resource.get("process.pid")
                pid = named if isinstance(named, int) and not isinstance(named, bool) else self._pid
                if pid not in self._files and len(self._files) >= MAX_PROCESSES:
                    continue
                file = self._files.get(pid)
                if file is None:
                    file = self._files[pid] = _ProcessFile(self._directory, pid, resource)
                spans = sorted(
                    (
                        span
                        for scope in group.scope_spans
                        for span in scope.spans
                        if len(span.trace_id) == 16
                        and len(span.span_id) == 8
                        and span.trace_id + span.span_id not in self._recent
                    ),
                    key=lambda span: span.start_time_unix_nano,
                )
                recorded += file.append(spans, self._offset)
                self._recent.update((span.trace_id + span.span_id, None) for span in spans)
                while len(self._recent) > MAX_RECENT:
                    self._recent.popitem(last=False)
                roots = [span for span in spans if not span.parent_span_id]
                for root in roots[: MAX_ROOTS - len(self.roots)]:
                    self.roots.append((root.trace_id.hex(), root.span_id.hex()))
        return recorded


class _ProcessFile:
    """File of the operations received as spans of one process."""

    def __init__(self, directory: Path, pid: int, resource: dict[str, Any]) -> None:
        self._path = directory / f"{OPERATIONS_PREFIX}otlp-{pid}{OPERATIONS_SUFFIX}"
        self._own = directory / f"{OPERATIONS_PREFIX}{pid}{OPERATIONS_SUFFIX}"
        self._read = 0
        self._known: set[bytes] = set()
        self._next = 1
        program = str(resource.get("process.executable.name") or resource.get("service.name") or "")
        self._header = header_line(pid=pid, start=None, program=program[:MAX_TEXT], exact=False)
        """Header line; empty once written."""

    def append(self, spans: Iterable[Span], offset: float) -> int:
        """Write the spans that the process did not record itself, in one call; return their number. They have ids."""
        self._read_own_spans()
        lines = bytearray(self._header)  # grows in place: a batch may have thousands of spans
        count = 0
        for span in spans:
            if span.span_id.hex().encode() in self._known:
                continue
            lines += _lines(span, self._next, offset)
            self._next += 1
            count += 1
        if count:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, FILE_MODE)
            try:
                os.write(descriptor, lines)
            finally:
                os.close(descriptor)
            self._header = b""
        return count

    def _read_own_spans(self) -> None:
        """Read the ids of spans that the process has recorded as operations itself, with exact values; skip these."""
        try:
            with os.fdopen(open_regular(self._own, os.O_NOFOLLOW), "rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        complete = data.rfind(b"\n") + 1
        self._read += complete
        self._known.update(_SPAN.findall(data[:complete]))


def _lines(span: Span, number: int, offset: float) -> bytes:
    start = span.start_time_unix_nano / 1e9 - offset
    end = max(start, span.end_time_unix_nano / 1e9 - offset)
    attributes = {item.key[:MAX_TEXT]: _value(item.value) for item in islice(span.attributes, MAX_ATTRIBUTES)}
    opening = opening_line(
        number=number,
        time=start,
        name=span.name[:MAX_TEXT] or "(no name)",
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex() or None,
        thread=None,
        rss=None,
        segment=None,
        more=opening_more(attributes, exported=True),
    )
    error = None
    if span.status.code == _ERROR:
        error = _error(span) or ""
    closing = closing_line(
        number=number,
        time=end,
        error=error,
        rss=None,
        segment=None,
        peak=UNKNOWN_PEAK,
        used=None,
        moved=None,
    )
    return opening + closing


def _error(span: Span) -> str | None:
    for event in span.events:
        for item in event.attributes:
            if item.key == "exception.type":
                return str(_value(item.value))[:MAX_TEXT]
    return span.status.message[:MAX_TEXT] or None


def _value(value: AnyValue, depth: int = 0) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "string_value":
        return value.string_value[:MAX_TEXT]
    if kind == "array_value" and depth < 3:
        return [_value(item, depth + 1) for item in value.array_value.values[:MAX_ATTRIBUTES]]
    if kind in {"bool_value", "int_value"}:
        return getattr(value, kind)
    if kind == "double_value":
        return value.double_value if abs(value.double_value) < float("inf") else str(value.double_value)
    return str(getattr(value, kind))[:MAX_TEXT]

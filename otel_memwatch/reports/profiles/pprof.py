"""Captured stacks in pprof's format (perftools.profiles.Profile), gzipped.

The message has few kinds of fields, so it is encoded here: protobuf's generated code would be ten times as long.
"""

from __future__ import annotations

import gzip

from otel_memwatch.run.stacks import weighted_stacks
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.record.stacks import StackFrame
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING, _TIME, _DURATION = 1, 2, 4, 5, 6, 9, 10
"""Numbers of the profile's fields in profile.proto."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the profile; its values are bytes of growth."""
    strings: dict[str, int] = {"": 0}
    locations: dict[StackFrame, int] = {}
    functions: dict[tuple[str, str], int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value.encode("utf-8", "backslashreplace").decode(), len(strings))

    profile = _message(_SAMPLE_TYPE, _number(1, text("growth")) + _number(2, text("bytes")))
    for stack in weighted_stacks(run.stacks):
        numbers = [locations.setdefault(frame, len(locations) + 1) for frame in stack.frames]
        label = _number(1, text("pid")) + _number(3, stack.capture.pid)
        profile += _message(_SAMPLE, _packed(1, numbers) + _packed(2, [stack.bytes]) + _message(3, label))
    for frame, number in locations.items():
        function = functions.setdefault((frame.function, frame.file), len(functions) + 1)
        line = _number(1, function) + _number(2, frame.line)
        profile += _message(_LOCATION, _number(1, number) + _message(4, line))
    for (name, file), number in functions.items():
        fields = _number(1, number) + _number(2, text(name)) + _number(3, text(name)) + _number(4, text(file))
        profile += _message(_FUNCTION, fields)
    for value in strings:
        profile += _message(_STRING, value.encode())
    profile += _number(_TIME, round(run.started_wall * 1e9)) + _number(_DURATION, round(run.seconds * 1e9))
    out.write(gzip.compress(profile, mtime=0))


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _number(field: int, value: int) -> bytes:
    """Return a field of a number that is not negative; its default 0 is omitted."""
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, data: bytes) -> bytes:
    """Return a field of a message, text or bytes."""
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))

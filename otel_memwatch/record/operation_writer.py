"""Write the lines of `operations-<pid>.jsonl`, which `record/format.py` describes.

The lines have few shapes, so they are written without `json`: its import costs the watched program 7 ms. Compiled code
(`in_target/operations/_native.c`) writes the same lines.
"""

from __future__ import annotations

from otel_memwatch.record.format import SCHEMA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    CpuTotals = tuple[float, float, int, int]
    """CPU seconds in user and kernel mode, minor and major page faults."""
    IoTotals = tuple[int, int, int, int]
    """Bytes read from and written to storage, bytes passed to read and to write calls."""
    Peak = tuple[int | None, int | None, int | None, str]
    """Peak, lower bound, upper bound, certainty."""

try:
    from _json import encode_basestring_ascii as _quote
except ImportError:  # another implementation of Python
    from json.encoder import encode_basestring_ascii as _quote

OPENING = ("open", "time", "name", "trace", "span", "parent", "thread", "rss", "segment")
"""Fields of an opening in writing order. Optional fields follow: `attributes`, `exported`.

`format.py` describes each field. Python code in the target and `otel-memwatch mark` write by this table and `CLOSING`;
`_native.c` writes the same fields.
"""

CLOSING = (
    "close",
    "time",
    "status",
    "error",
    "rss",
    "segment",
    "peak",
    "low",
    "high",
    "certainty",
    "cpu_user",
    "cpu_system",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "write_bytes",
    "read_chars",
    "write_chars",
)
"""Fields of a closing. Optional fields follow: `gpu`, `attributes`."""

_GPU_NUMBERS = ("peak", "low", "high", "reserved_peak", "start", "end", "ooms", "retries", "fragmentation")
_DEVICE = (
    '{"allocator":"%(allocator)s","certainty":"%(certainty)s",'
    + ",".join(f'"{field}":%({field})s' for field in _GPU_NUMBERS)
    + "}"
)
"""One device in a closing's `gpu`, as `in_target.allocators` describes it."""

LONGEST_NAME = 512
LONGEST_TEXT = 4096
MOST_ATTRIBUTES = 128
MOST_ELEMENTS = 128

END = b"}\n"
"""End of a line without additional fields."""
_OPENING_LINE = "{" + ",".join(f'"{field}":%s' for field in OPENING)
_CLOSING_LINE = "{" + ",".join(f'"{field}":%s' for field in CLOSING)


UNKNOWN_PEAK: Peak = (None, None, None, "sampled")
"""Peak of an operation whose process did not measure it."""


def header_line(
    *,
    pid: int,
    start: float | None,
    program: str,
    exact: bool,
    floor: int | None = None,
    rank: int | None = None,
) -> bytes:
    """Return the first line of a process's file.

    Args:
        pid: process ID.
        start: start of the process in monotonic seconds.
        program: name of the program.
        exact: true if the process resets its peak counter at each boundary.
        floor: peak of the process before its first operation, in bytes.
        rank: number of the process among those that a launcher started.

    """
    number = "" if rank is None else f',"rank":{rank}'
    return (
        f'{{"schema":{SCHEMA},"pid":{pid},"start":{"null" if start is None else round(start, 3)},'
        f'"program":{quote(program)},"exact":{"true" if exact else "false"},"floor":{_number(floor)}{number}}}\n'
    ).encode()


def opening_line(
    *,
    number: int,
    time: float,
    name: str,
    trace: str,
    span: str,
    parent: str | None,
    thread: int | None,
    rss: int | None,
    segment: int | None,
    more: bytes = END,
) -> bytes:
    """Return the line for the opening of an operation; `more` is the rest of the line."""
    fields = (
        number,
        f"{time:.6f}",
        quote(name),
        quote(trace),
        quote(span),
        "null" if parent is None else quote(parent),
        _number(thread),
        _number(rss),
        _number(segment),
    )
    return (_OPENING_LINE % fields).encode() + more


def closing_line(
    *,
    number: int,
    time: float,
    error: str | None,
    rss: int | None,
    segment: int | None,
    peak: Peak,
    used: CpuTotals | None,
    moved: IoTotals | None,
    more: bytes = END,
) -> bytes:
    """Return the line for the closing of an operation; `more` is the rest of the line."""
    largest, low, high, certainty = peak
    user, system, minor, major = used or (None, None, None, None)
    fields = (
        number,
        f"{time:.6f}",
        '"ok"' if error is None else '"error"',
        "null" if error is None else quote(error),
        _number(rss),
        _number(segment),
        _number(largest),
        _number(low),
        _number(high),
        quote(certainty),
        "null" if user is None else f"{user:.6f}",
        "null" if system is None else f"{system:.6f}",
        _number(minor),
        _number(major),
        *map(_number, moved or (None, None, None, None)),
    )
    return (_CLOSING_LINE % fields).encode() + more


def opening_more(attributes: Mapping[str, object] | None, exported: bool) -> bytes:
    """Return the rest of an opening's line; `exported` means that the program exports the span."""
    text = f',"attributes":{attributes_text(attributes)}' if attributes else ""
    return (text + (',"exported":true' if exported else "")).encode() + END


def closing_more(gpu: Mapping[str, Any] | None, attributes: Mapping[str, object] | None) -> bytes:
    """Return the rest of a closing's line. `gpu` is as from `in_target.allocators`."""
    text = ""
    if gpu:
        devices = [
            f"{_quote(name)}:" + (_DEVICE % figures).replace("None", "null") for name, figures in gpu.items()
        ]
        text = f',"gpu":{{{",".join(devices)}}}'
    return (text + (f',"attributes":{attributes_text(attributes)}' if attributes else "")).encode() + END


def _number(value: float | None) -> str:
    return "null" if value is None else str(value)


def quote(text: str) -> str:
    """Return `text` as a JSON string in ASCII. Lone surrogates become question marks."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return _quote(text)


def clean_name(name: object) -> tuple[str, bool]:
    """Return a valid name for the record, and whether `name` was valid."""
    if type(name) is str and 0 < len(name) <= LONGEST_NAME:
        return name, True
    text = str.__str__(name) if isinstance(name, str) else _describe(name)
    if not text:
        return "(no name)", False
    return (text[: LONGEST_NAME - 3] + "..." if len(text) > LONGEST_NAME else text), isinstance(
        name, str
    ) and (len(text) <= LONGEST_NAME)


def attributes_text(attributes: Mapping[str, object]) -> str:
    """Return a JSON object. Values of types unknown to OpenTelemetry become text; long values are cut."""
    parts: list[str] = []
    for name, value in attributes.items():
        if len(parts) == MOST_ATTRIBUTES:
            break
        parts.append(f"{quote(str(name)[:LONGEST_NAME])}:{_value(value)}")
    return "{" + ",".join(parts) + "}"


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_scalar(element) for element in value[:MOST_ELEMENTS]) + "]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return quote(str.__str__(value)[:LONGEST_TEXT])
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int.__repr__(value)
    if isinstance(value, float) and value - value == 0:  # finite
        return float.__repr__(value)
    if value is None:
        return "null"
    return quote(_describe(value)[:LONGEST_TEXT])


def _describe(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value belongs to the program, and its __str__ may raise anything
        return f"({type(value).__name__})"

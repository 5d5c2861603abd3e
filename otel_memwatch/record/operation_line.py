"""Lines of `operations-<pid>.jsonl` as objects with checked fields.

`OperationLine` declares the fields. `decode` parses lines with `json`, or those of large files with `msgspec`, which checks
the types while it parses, in a fifth of the time. Both give equal lines.
"""

from __future__ import annotations

from otel_memwatch.record.fields import FARTHEST, moment, number, text, whole
from otel_memwatch.record.jsonl import parse_all
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Seconds = float
    Object = dict[str, Any]


class OperationLine:
    """A header, an opening or a closing. `None`: the line lacks the field, or its value is invalid.

    `record/format.py` describes the fields.
    """

    schema: int | None = None
    pid: int | None = None
    start: Seconds | None = None
    exact: bool | None = None
    rank: int | None = None

    open: int | None = None
    close: int | None = None
    time: Seconds | None = None
    rss: int | None = None
    segment: int | None = None
    attributes: Object | None = None

    name: str | None = None
    trace: str | None = None
    span: str | None = None
    parent: str | None = None
    thread: int | None = None
    exported: bool | None = None

    status: str | None = None
    error: str | None = None
    peak: int | None = None
    low: int | None = None
    high: int | None = None
    certainty: str | None = None
    cpu_user: float | None = None
    cpu_system: float | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    read_chars: int | None = None
    write_chars: int | None = None
    gpu: Object | None = None

    heap: Object | None = None

    boundary: int | None = None
    """Number of the opening among the boundaries of its process; set by `OperationLines`."""
    offset: int = 0
    """Bytes of the file before it, if a reader has set it."""


FIELDS: dict[str, str] = OperationLine.__annotations__
"""Type of each field."""

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "int": whole,
    "int | None": whole,
    "float | None": number,
    "Seconds | None": moment,
    "str | None": text,
    "bool | None": lambda value: value if isinstance(value, bool) else None,
    "Object | None": lambda value: value if isinstance(value, dict) else None,
}
_CHECK_OF = {field: _CHECKS[kind] for field, kind in FIELDS.items()}
_TYPES: dict[str, type] = {
    "int": int,
    "float": float,
    "Seconds": float,
    "str": str,
    "bool": bool,
    "Object": dict,
}
_TYPE_OF = {field: _TYPES[kind.partition(" ")[0]] for field, kind in FIELDS.items()}
_MOST = 2**63 - 1

_LONG = 4 << 20
"""Bytes of lines above which `msgspec` saves more time than its import takes (60 ms)."""

_typed: Callable[[bytes], list[OperationLine] | None] | None = None
_imported = False


def line_of(value: dict[str, Any]) -> OperationLine:
    """Return the line of a JSON object, which becomes part of it."""
    type_of = _TYPE_OF.get
    for field, content in value.items():
        kind: Any = type_of(field)
        if type(content) is kind:  # the usual case: a program may write a hundred thousand a second
            if kind is int:
                if -_MOST <= content <= _MOST:
                    continue
            elif kind is not float or -FARTHEST <= content <= FARTHEST:
                continue
        if kind is not None and content is not None:
            value[field] = _CHECK_OF[field](content)
    line = OperationLine()
    line.__dict__ = value
    return line


def decode(texts: Sequence[bytes], size: int = 0) -> Sequence[OperationLine | None]:
    """Return the line of each text; `None` for one that is no JSON object. No text may be empty.

    `size`: bytes of all lines that the caller knows of.
    """
    global _typed, _imported
    if size > _LONG and not _imported:
        _typed, _imported = _typed_decoder(), True
    lines = None if _typed is None else _typed(b"[" + b",".join(texts) + b"]")
    if lines is not None and len(lines) == len(texts):
        return lines
    return [line_of(value) if isinstance(value, dict) else None for value in parse_all(list(texts))]


def _typed_decoder() -> Callable[[bytes], list[OperationLine] | None] | None:
    """Return a decoder of an array of lines; `None` if `msgspec` is not installed.

    The decoder returns `None` unless all fields are valid.
    """
    try:
        from typing import Annotated

        from msgspec import DecodeError, Meta, defstruct
        from msgspec.json import Decoder
    except ImportError:
        return None
    kinds: dict[str, Any] = {
        "int | None": Annotated[int, Meta(ge=-_MOST, le=_MOST)] | None,
        "float | None": float | None,
        "Seconds | None": Annotated[float, Meta(ge=-FARTHEST, le=FARTHEST)] | None,
        "str | None": str | None,
        "bool | None": bool | None,
        "Object | None": dict[str, Any] | None,
    }
    kinds["int"] = kinds["int | None"]
    fields = [(field, kinds[kind], getattr(OperationLine, field)) for field, kind in FIELDS.items()]
    # Most programs mark thousands of operations: without the garbage collector, lines take half the time.
    decoder: Any = Decoder(list[defstruct("TypedOperationLine", fields, gc=False)])  # type: ignore[misc]

    def decoded(text: bytes) -> list[OperationLine] | None:
        try:
            lines: list[OperationLine] = decoder.decode(text)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return lines

    return decoded

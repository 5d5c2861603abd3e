"""Fast search for operations that opened and closed without a line between them, in a third of the time.

A program may mark a hundred thousand operations a second, and nearly all are such pairs. They have no attributes, no GPU
values, and no escapes in the name. One search extracts the fields for totals from each, and creates no other object.
Text that differs from the output of `record/operation_writer.py` stays a line, for `jsonl.parse_all` and
`OperationLines.match`. These give the same results for the pairs.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice

from otel_memwatch.record.operation_fields import CLOSING, OPENING
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT = r'"[ !#-\[\]-~]*"'
_WHOLE = r"(?:0|[1-9]\d{0,17})"
"""Whole number that `OperationLines` accepts: it fits 62 bits."""
_SECONDS = r"(?:0|[1-9]\d{0,8})\.\d{6}"
_SHAPES = {
    "time": _SECONDS,
    "name": _TEXT,
    "trace": _TEXT,
    "span": _TEXT,
    "parent": f"(?:null|{_TEXT})",
    "status": '"(?:ok|error)"',
    "error": f"(?:null|{_TEXT})",
    "certainty": _TEXT,
    "cpu_user": _SECONDS,
    "cpu_system": _SECONDS,
}
"""All other fields are whole numbers."""
_FEW = 4
"""Number of pairs below which processing them together does not pay."""
_WANTED_OF_OPENING = {"open", "time", "name", "segment"}
_WANTED_OF_CLOSING = {"time", "status", "segment", "peak", "low", "high", "cpu_user", "cpu_system"}


class PlainPairs(NamedTuple):
    """Fields of pairs in the order of their lines: each field for all pairs, as text."""

    lines: tuple[str, ...]
    """Both lines of each pair, with their newlines."""
    identities: tuple[str, ...]
    starts: tuple[str, ...]
    names: tuple[str, ...]
    """In quotation marks."""
    start_segments: tuple[str, ...]
    ends: tuple[str, ...]
    statuses: tuple[str, ...]
    """In quotation marks."""
    end_segments: tuple[str, ...]
    peaks: tuple[str, ...]
    lows: tuple[str, ...]
    highs: tuple[str, ...]
    cpu_user: tuple[str, ...]
    cpu_system: tuple[str, ...]


def pieces(text: bytes) -> Iterator[PlainPairs | list[bytes]]:
    """Split complete lines, each with its newline, into pairs and other lines, in order. Few pairs stay lines too."""
    if not text.isascii():
        yield text.split(b"\n")
        return
    rows = _search().findall(
        text.decode("ascii")
    )  # int() and float() take half the time for str that they take for bytes
    begin = 0
    lines: list[bytes] = []
    for index in (*(index for index, row in enumerate(rows) if not row[0]), len(rows)):
        if index - begin < _FEW:
            for row in rows[begin:index]:
                lines += row[0].encode("ascii").splitlines()
        else:
            if lines:
                yield lines
                lines = []
            yield PlainPairs(*islice(zip(*rows[begin:index], strict=True), len(PlainPairs._fields)))
        begin = index + 1
        if index < len(rows) and rows[index][-1]:
            lines.append(rows[index][-1].encode("ascii"))
    if lines:
        yield lines


@cache
def _search() -> re.Pattern[str]:
    """Return the search pattern, compiled at first use in some milliseconds: few programs mark so many operations."""
    opening = _line(OPENING, _WANTED_OF_OPENING)
    # The closed number equals the opened one: the second group.
    closing = _line(CLOSING, _WANTED_OF_CLOSING, close=r"\2")
    return re.compile(rf"({opening}{closing})|([^\n]*)\n", re.ASCII)


def _line(fields: tuple[str, ...], wanted: set[str], **shapes: str) -> str:
    parts = []
    for field in fields:
        shape = shapes.get(field) or _SHAPES.get(field, _WHOLE)
        parts.append(f'"{field}":' + (f"({shape})" if field in wanted else shape))
    return r"\{" + ",".join(parts) + r"\}\n"

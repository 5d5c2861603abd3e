"""Operations that opened and closed without a line between them, found in a block of lines in a third of the time.

A program may mark a hundred thousand operations a second, and nearly all are such pairs: no attributes, nothing of a GPU, a
name in which nothing is escaped. One search takes from each what totals need, and makes no object of anything else.
Whatever is not exactly as `record/operation_writer.py` writes it stays a line: for `jsonl.parse_all` and
`OperationLines.match`, which say of these pairs the same as what is found here.
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
"""What `OperationLines` believes: it fits 62 bits."""
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
"""Pairs that are not worth what it takes to look at them together."""
_WANTED_OF_OPENING = {"open", "time", "name", "segment"}
_WANTED_OF_CLOSING = {"time", "status", "segment", "peak", "low", "high", "cpu_user", "cpu_system"}


class PlainPairs(NamedTuple):
    """What is wanted of some pairs in the order of their lines: each field of all of them, as it stands there."""

    lines: tuple[str, ...]
    """Both of a pair, each with its newline."""
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
    """Complete lines, each with its newline, as pairs and lines that follow each other. Few pairs are left as lines too."""
    if not text.isascii():
        yield text.split(b"\n")
        return
    rows = _search().findall(
        text.decode("ascii")
    )  # numbers of text are read in half the time of those of bytes
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
    """Made when it is first needed, in some milliseconds: few programs mark so many."""
    opening = _line(OPENING, _WANTED_OF_OPENING)
    # The number that is closed is the one that was opened: the second group.
    closing = _line(CLOSING, _WANTED_OF_CLOSING, close=r"\2")
    return re.compile(rf"({opening}{closing})|([^\n]*)\n", re.ASCII)


def _line(fields: tuple[str, ...], wanted: set[str], **shapes: str) -> str:
    parts = []
    for field in fields:
        shape = shapes.get(field) or _SHAPES.get(field, _WHOLE)
        parts.append(f'"{field}":' + (f"({shape})" if field in wanted else shape))
    return r"\{" + ",".join(parts) + r"\}\n"

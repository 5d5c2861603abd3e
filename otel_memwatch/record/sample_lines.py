"""Lines of `samples.jsonl`: headers that declare columns, and samples as rows of numbers.

Lines are parsed a few thousand at a time, by `msgspec` in long files.
"""

from __future__ import annotations

import os
from itertools import chain, pairwise

from otel_memwatch.model import Column
from otel_memwatch.record.fields import FARTHEST, mapping, moment, number, text
from otel_memwatch.record.jsonl import (
    MAX_DAMAGED,
    MAX_LINE,
    Damage,
    GarbageGuard,
    line_blocks,
    lines_of,
    open_regular,
    parse,
)
from otel_memwatch.record.sample_files import sample_files, samples_size
from otel_memwatch.runtime.fast_json import decoder
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from otel_memwatch.record.jsonl import FilePath, Readable

_SOUGHT = 1024 * 1024
"""Bytes searched at once for the beginnings of lines."""

_BLOCK = 256 * 1024
"""Bytes parsed at once: few enough that the resulting objects do not outlive a garbage collection."""

MAX_COLUMNS = 100_000
"""Columns that one file may declare; a header with more is damage."""

_VALUES = 16_000_000
_VALUES_PER_BYTE = 4
"""Limit of samples times columns in a file: a fixed number, plus a number for each byte of its samples.

A sample may omit unknown values, so a few megabytes could represent terabytes. Our files have a value for every five
bytes.
"""

Row = list[float | None]


class SampleBlock(NamedTuple):
    """A few thousand samples with the same columns."""

    columns: tuple[Column, ...]
    rows: list[Row]
    """Time and values of each sample. A row may be shorter than the columns, never longer: the rest is unknown."""
    sound: bool
    """True if all rows are certainly samples. `is_sample`, which takes as long as parsing them, is then unnecessary."""


def parse_columns(declared: Any) -> tuple[Column, ...] | None:
    """Return the columns that a header line declares; `None` if the line is not a header."""
    listed = mapping(declared).get("columns")
    if not isinstance(listed, list) or len(listed) > MAX_COLUMNS:
        return None
    columns = []
    for entry in listed:
        fields = mapping(entry)
        metric = text(fields.get("metric"))
        if metric is None:
            return None
        attributes = sorted(
            (k, v) for k, v in mapping(fields.get("attributes")).items() if isinstance(v, str)
        )
        columns.append(Column(metric, tuple(attributes), number(fields.get("period")) or 0.0))
    return tuple(columns)


def declared_columns(path: FilePath) -> tuple[Column, ...]:
    """Return all columns that any header of `samples.jsonl` declares, in the order of their first declaration.

    A source that opens late adds a second header in the middle of the file. Costs a search for the beginnings of
    lines, about 1 s per GiB. Raises nothing: an unreadable file declares nothing.
    """
    found: dict[Column, None] = {}
    damaged = 0
    # Like `sample_blocks`: ignore a declaration that would exceed the limit of columns.
    with suppress(OSError):
        for line in chain.from_iterable(map(_objects, sample_files(path, Damage(os.path.basename(path))))):
            declared = parse_columns(parse(line))
            fresh = {column: None for column in declared or () if column not in found}
            if declared is None or len(found) + len(fresh) > MAX_COLUMNS:
                damaged += 1
                if damaged > MAX_DAMAGED:
                    break
            else:
                found.update(fresh)
    return tuple(found)


def last_columns(path: FilePath, begin: int = 0) -> tuple[Column, ...] | None:
    """Return the columns in force at the end of the file; `None` if none are declared after `begin` bytes.

    Cost and errors are those of `declared_columns`.
    """
    last = None
    with suppress(OSError), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        file.seek(begin)
        for line in _objects(file):
            last = parse_columns(parse(line)) or last
    return last


def _objects(file: Readable) -> Iterator[bytes]:
    """Yield the lines that are objects, from the file's position. It is read, not mapped: mapped pages count as our memory."""
    before = b"\n"
    garbage = GarbageGuard()
    while (data := file.read(_SOUGHT)) and not garbage.exceeded(data):
        sought = before + data
        index = sought.find(b"\n{")
        while index >= 0 and (end := sought.find(b"\n", index + 1)) >= 0:
            yield sought[index + 1 : end]
            index = sought.find(b"\n{", end)
        before = sought[index:] if index >= 0 and len(sought) - index <= MAX_LINE else data[-1:]
    if len(before) > 1:
        yield before[1:]


def sample_blocks(
    path: FilePath,
    damage: Damage,
    begin: int = 0,
    columns: tuple[Column, ...] | None = None,
    *,
    plain: bool = False,
) -> Iterator[SampleBlock]:
    """Yield the samples of `samples.jsonl`, a few thousand at a time, with their columns.

    Samples before the first header are damage: their columns are unknown.

    Args:
        path: the open file.
        damage: counter of unreadable lines.
        begin: bytes of the open file to skip. Closed segments are then left out.
        columns: columns in force at `begin`, see `last_columns`.
        plain: use the standard library only, as in the watched program.
    """
    known = set(columns or ())
    values, size = 0, 0
    decode = None if plain or samples_size(path) <= _LONG else _typed_decoder()
    blocks = line_blocks(path, damage, _BLOCK, begin) if begin else _blocks(path, damage)
    for stretch in _stretches(blocks):
        if damage.lines > MAX_DAMAGED:
            continue  # the next block is not read
        fresh: set[Column] = set()
        lines = stretch
        if stretch and stretch[0][:1] == b"{":
            declared = parse_columns(parse(stretch[0]))
            fresh = {column for column in declared or () if column not in known}
            if declared is None or len(known) + len(fresh) > MAX_COLUMNS:
                damage.lines += 1
            else:
                columns = declared
                known |= fresh
            lines = stretch[1:]
        if columns is None:
            damage.lines += len(lines)
            continue
        rows, sound = _rows(lines, len(columns), damage, decode)
        values += len(rows) * len(columns)
        size += sum(map(len, lines))
        if values > _VALUES + _VALUES_PER_BYTE * size:
            damage.give_up(f"its samples leave out most of the {len(columns)} columns that it declares")
            return
        if rows or fresh:
            yield SampleBlock(columns, rows, sound)


def _blocks(path: FilePath, damage: Damage) -> Iterator[list[bytes]]:
    """Yield the lines of all files of samples, a few thousand at a time."""
    for file in sample_files(path, damage):
        yield from lines_of(file, damage, _BLOCK)


def all_lines(path: FilePath, damage: Damage) -> Iterator[bytes]:
    """Yield the lines of all files of samples."""
    return chain.from_iterable(_blocks(path, damage))


_LONG = 2 << 20
"""Size of the samples in bytes above which `msgspec` saves more time than its import takes (25 ms)."""


def _typed_decoder() -> Callable[[bytes], list[Row] | None] | None:
    """Return a decoder of an array of rows that checks all values, in a third of the time of `json`.

    `None`: `msgspec` is not installed. The decoder returns `None` unless all values are numbers.
    """
    try:
        from typing import Annotated

        from msgspec import DecodeError, Meta
        from msgspec.json import Decoder
    except ImportError:
        return None
    whole: Any = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    decoder: Any = Decoder(list[list[whole | float | None]])

    def decode(text: bytes) -> list[Row] | None:
        try:
            rows: list[Row] = decoder.decode(text)
        except (DecodeError, RecursionError):
            return None
        return rows

    return decode


def _stretches(blocks: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield the lines, a few thousand at a time; a header is always the first of its stretch."""
    for lines in blocks:
        begins = [index for index, line in enumerate(lines) if index and line[:1] == b"{"]
        for first, end in pairwise((0, *begins, len(lines))):
            yield lines[first:end]


def _rows(
    lines: list[bytes], width: int, damage: Damage, decode: Callable[[bytes], list[Row] | None] | None
) -> tuple[list[Row], bool]:
    """Return the rows of lines that are arrays, and whether all are certainly samples.

    Valid lines are parsed all at once, otherwise one by one.
    """
    text = b"[" + b",".join(lines) + b"]"
    rows = None if decode is None else decode(text)
    are_numbers = rows is not None
    if rows is None:
        try:
            rows = _decode(text.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            rows = None
    if rows is not None and len(rows) == len(lines) and _all_fit(rows, width):
        times: list[Any] = [row[0] for row in rows]
        sound = bool(rows) and (are_numbers or _are_numbers(text, len(rows)))
        return rows, sound and bool(min(times) >= -FARTHEST and max(times) <= FARTHEST)
    kept = []
    for line in lines:
        row = parse(line)
        if type(row) is list and 1 <= len(row) <= width + 1 and row[0] is not None:
            kept.append(row)
        else:
            damage.lines += 1
    return kept, False


_DIGITS = 300
"""Number of consecutive digits up to which every number without an exponent is finite."""
_KINDS = bytes(48 if 48 <= byte <= 57 else 32 if byte in b",.-[] \tnul" else 33 for byte in range(256))
"""Class of each byte: digit (48), other character of arrays of numbers and nulls (32), anything else (33)."""


def _are_numbers(text: bytes, rows: int) -> bool:
    """Return whether an array of `rows` arrays contains only finite numbers and nulls.

    It checks the text: a check of each of a day's thirty million values would take as long as parsing them.
    """
    kinds = text.translate(_KINDS)
    return b"!" not in kinds and b"0" * _DIGITS not in kinds and text.count(b"[") == rows + 1


def _not_known(_: str) -> None:
    """Return `None` for `NaN` and `Infinity`: they are not JSON, and their values are unknown."""


_decode = decoder(_not_known)


def _all_fit(rows: list[Any], width: int) -> bool:
    """Return whether each row fits the header; a look at each takes a tenth of the time of reading a day."""
    if not rows or set(map(type, rows)) != {list}:
        return not rows
    sizes = set(map(len, rows))
    return min(sizes) >= 1 and max(sizes) <= width + 1 and None not in [row[0] for row in rows]


def is_sample(row: Sequence[Any]) -> bool:
    """Return whether a row is a time followed by numbers or nulls, all finite."""
    if moment(row[0]) is None:
        return False
    # All at once, because a day has thirty million values; one by one only if a value is unusual.
    if _NUMBERS.issuperset(map(type, row)):
        known = [value for value in row if value is not None]
        if min(known) > -_SURELY_FINITE and max(known) < _SURELY_FINITE:
            return True
    return all(value is None or number(value) is not None for value in row)


_NUMBERS = frozenset((int, float, type(None)))
_SURELY_FINITE = 1e300

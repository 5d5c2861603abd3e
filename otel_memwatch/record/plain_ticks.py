"""Ticks as arrays straight from their text, where that is as we write it: in a third of the time of `json`.

Nearly every value is `null` or a number of at most 15 digits, with a point or without. So its digits are a whole number below
2**53, and dividing that by a power of ten below 10**22, which is exact too, rounds once: to the same number that `json`
reads. Numbers of more digits, or with a sign or an exponent, are read one by one. Whatever is no tick, such as damage, is for
`json` to judge: of lines among which there is any there is no array.
"""

from __future__ import annotations

import json
import math

import numpy as np

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LETTERS = b"0123456789,.[]\n"
_ODD = b"eE+-"
_NULL = 99_999_999_999_999_999
"""Stands for `null` among whole numbers. With anything else beside it, which is not JSON, it is another number."""
_NULL_TEXT = b"%d" % _NULL
_LARGEST = 10**15 - 1
_POINT, _COMMA, _ZERO = b".,0"
_POWERS = 10.0 ** np.arange(23)


def plain_ticks(lines: list[bytes], width: int) -> NDArray[np.float64] | None:
    """A row for each line, with a time and `width` values; NaN where they are not known. `None`: not all lines are ticks."""
    text = b"\n".join(lines)
    if _NULL_TEXT in text:
        return None
    other = text.translate(None, _LETTERS + _ODD)
    if other:
        nulls = text.count(b"null")
        if other != b"null" * nulls:
            return None
        text = text.replace(b"null", _NULL_TEXT)
    whole_lines = text.count(b"[") == text.count(b"]") == len(lines) == text.count(b"]\n[") + 1
    if not (whole_lines and text.startswith(b"[") and text.endswith(b"]")):
        return None
    values = _values(text[1:-1].replace(b"]\n[", b","))
    lengths = np.fromiter((line.count(b",") + 1 for line in lines), np.intp, len(lines))
    if values is None or lengths.max() > width + 1:
        return None
    if lengths.min() == width + 1:
        table = values.reshape(len(lines), width + 1)
    else:
        table = np.full((len(lines), width + 1), np.nan)
        table[np.arange(width + 1) < lengths[:, None]] = values
    return None if np.isnan(table[:, 0]).any() else table


def _values(text: bytes) -> NDArray[np.float64] | None:
    """The numbers of a text of numbers and commas; `None` where JSON would have it otherwise, or they are not finite."""
    letters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(letters == _COMMA), len(text))
    begins = np.concatenate(([0], ends[:-1] + 1))
    if any(odd in text for odd in _ODD):
        return _values_with_odd(text, begins, ends)
    lengths = ends - begins
    if not lengths.min():
        return None
    # A zero that begins a number is the only digit before its point.
    zeros = begins[(letters[begins] == _ZERO) & (lengths > 1)]
    if (letters[zeros + 1] != _POINT).any():
        return None
    points = np.flatnonzero(letters == _POINT)
    pointed = np.searchsorted(ends, points)
    if len(points):
        decimals = ends[pointed] - points - 1
        if (points == begins[pointed]).any() or not decimals.min() or (pointed[1:] == pointed[:-1]).any():
            return None
        whole = np.fromstring(text.translate(None, b"."), np.int64, sep=",")
        values = whole.astype(np.float64)
        values[pointed] /= _POWERS[np.minimum(decimals, len(_POWERS) - 1)]
        exact = (whole[pointed] <= _LARGEST) & (decimals < len(_POWERS))
        for index in pointed[~exact].tolist():
            token = text[begins[index] : ends[index]]
            if _NULL_TEXT in token:
                return None
            values[index] = float(token)
            whole[index] = 0
    else:
        whole = np.fromstring(text, np.int64, sep=",")
        values = whole.astype(np.float64)
    large = np.flatnonzero(whole > _LARGEST)
    if (whole[large] != _NULL).any():
        return None
    values[large] = np.nan
    return values


def _values_with_odd(
    text: bytes, begins: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.float64] | None:
    """As `_values`, where some numbers have a sign or an exponent: of these each is read by `json`."""
    letters = np.frombuffer(text, np.uint8)
    places = np.flatnonzero(np.isin(letters, np.frombuffer(_ODD, np.uint8)))
    odd = np.unique(np.searchsorted(ends, places)).tolist()
    pieces, found, done = [], [], 0
    for index in odd:
        begin, end = int(begins[index]), int(ends[index])
        try:
            value = float(json.loads(text[begin:end]))
        except (ValueError, OverflowError):
            return None
        if _NULL_TEXT in text[begin:end] or not math.isfinite(value):
            return None
        found.append(value)
        pieces += [text[done:begin], b"0"]
        done = end
    values = _values(b"".join([*pieces, text[done:]]))
    if values is not None:
        values[odd] = found
    return values

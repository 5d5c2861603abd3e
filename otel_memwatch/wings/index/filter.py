"""Conditions on runs: `tag.rule=align and peak>2GiB and not (state=broken or started<2026-11-01)`.

=============================  ================================================================================
part                           meaning
=============================  ================================================================================
FIELD OP VALUE                 OP is one of = != < <= > >= and ~ (contains the text, in any case)
FIELD                          the value is known, and neither empty nor 0
and, or, not, ( )              `not` binds closest, then `and`, then `or`
sizes, durations, moments      as `units` reads them: 2GiB, 10min, 2026-11-01, or 14d for how long ago
tags                           tag.NAME; compared as numbers if both sides are numbers
'text', "text"                 a value with spaces or parentheses
=============================  ================================================================================

A comparison with an unknown value is false, also with `!=`; `not` inverts it.

The tokens are translated into an SQL expression, and SQLite evaluates it. Only signs, keywords and numbered parameters
reach the expression: no text of a user is ever part of it.
"""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.units import parse_duration, parse_moment, parse_number, parse_size
from otel_memwatch.wings.index.run_fields import COLUMNS, RunField, column

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from otel_memwatch.wings.index.indexed_run import IndexedRun

    Condition = Callable[[IndexedRun], bool]
    Value = str | float | None

_TOKEN = re.compile(
    r"""\s*(?:(?P<bracket>[()])|(?P<word>[^\s()=!<>~'"]+)"""
    r"""(?:\s*(?P<sign>!=|<=|>=|=|<|>|~)\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^\s()=!<>~'"]+))?)?)"""
)
"""A parenthesis, or a word: a keyword, a field, or a field with a sign and a value."""
_SHOWN = 200
"""Characters of a condition that an error quotes."""
_DEEPEST = 100
"""Open parentheses; SQLite's parser has a stack of about as many entries."""
_LARGEST_INTEGER = 2**63
_READERS: dict[str, Callable[[str], float]] = {
    "size": parse_size,
    "duration": parse_duration,
    "moment": parse_moment,
    "number": parse_number,
    "rounded": parse_number,
    "text": parse_number,
}


def where(text: str) -> Condition:
    """Return the condition. Raises `UsageError` for a mistake in it, which names the part."""
    translation = _Translation(text)
    query = f"SELECT {' '.join(translation.expression)}"
    slots = [(n, one.of) for n, one in enumerate(translation.parameters) if isinstance(one, RunField)]
    values = [None if isinstance(one, RunField) else one for one in translation.parameters]
    database = sqlite3.connect(":memory:")
    database.create_function(
        "holds",
        2,
        lambda value, wanted: value is not None and wanted in str(value).lower(),
        deterministic=True,
    )
    database.create_function("number", 1, _number, deterministic=True)

    cursor = database.cursor()  # one for all rows: a new one for each takes as long as the query

    def accepts(row: IndexedRun) -> bool:
        for slot, of in slots:
            values[slot] = _bound(of(row))
        return bool(cursor.execute(query, values).fetchone()[0])

    try:
        cursor.execute(query, values)
    except sqlite3.Error:
        raise _mistake(text, "it is too long or nested too deeply; divide it") from None
    return accepts


class _Translation:
    """SQL expression of a condition, in parts. SQLite handles precedence; this class only checks each token's position."""

    def __init__(self, text: str) -> None:
        self.expression: list[str] = []
        self.parameters: list[Value | RunField] = []
        self._text = text.rstrip()
        self._depth = 0
        self._negated = False
        self._value_before = ""
        read: Callable[[re.Match[str]], Any] = self._operand
        position = 0
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if not found:
                raise _mistake(text, f"unexpected {_quoted(self._text[position:].strip())}")
            position = found.end()
            read = read(found)
        if read == self._operand:
            raise _mistake(text, "a field is missing at the end")
        if self._depth:
            raise _mistake(text, "')' is missing at the end")

    def _operand(self, found: re.Match[str]) -> Callable[[re.Match[str]], Any]:
        """Read "not", "(" or a test, and return the reader of the next token."""
        part = found[0].strip()
        if part.lower() == "not":
            self._negated = not self._negated  # each "not" in the expression would be one more level
            return self._operand
        if part == ")":
            raise self._unexpected(part)
        self.expression += ["not"] if self._negated else []
        self._negated = False
        if part != "(":
            self.expression.append(self._test(found))
            return self._operator
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _mistake(self._text, f"more than {_DEEPEST} parentheses are open")
        self.expression.append(part)
        return self._operand

    def _operator(self, found: re.Match[str]) -> Callable[[re.Match[str]], Any]:
        """Read "and", "or" or ")"."""
        part = found[0].strip()
        if part.lower() in ("and", "or"):
            self.expression.append(part.lower())
            return self._operand
        if part != ")" or not self._depth:
            raise self._unexpected(part)
        self._depth -= 1
        self.expression.append(part)
        return self._operator

    def _test(self, found: re.Match[str]) -> str:
        """Return the SQL of a field, or of its comparison with a value."""
        word, sign = found["word"], found["sign"]
        field = column(word)
        if field is None:
            names = ", ".join(COLUMNS)
            raise UsageError(
                f"--where {_quoted(self._text)}: there is no field {_quoted(word)}.",
                f"there are {names}, tag.NAME",
            )
        left = self._slot(field)
        if sign is None:
            return f"ifnull({left} NOT IN (0, ''), 0)"
        wanted = next((found[one] for one in ("single", "double", "plain") if found[one] is not None), None)
        if wanted is None:
            open_quote = self._text[found.end() : found.end() + 1] in ("'", '"')
            what = "the quote is not closed" if open_quote else "a value is missing"
            raise _mistake(self._text, f"{what} after {_quoted(word + sign)}")
        self._value_before = wanted
        if word == "verdict" and sign in ("=", "!="):
            from otel_memwatch.record.run_info_schema import VERDICTS

            known = ("finished", "killed", *VERDICTS)
            if wanted not in ("", *known):
                raise UsageError(
                    f"--where {_quoted(self._text)}: there is no verdict {_quoted(wanted)}.",
                    f"there are {', '.join(known)}",
                )
        if sign == "~":
            return f"holds({left}, {self._slot(_bound(wanted.lower()))})"
        try:
            value = self._slot(_bound(_READERS[field.kind](wanted)))
        except ValueError as error:
            if field.kind != "text":
                raise _mistake(self._text, str(error)) from None
            return f"ifnull({left} {sign} {self._slot(_bound(wanted))}, 0)"
        if field.kind == "text":  # tag.size>9 holds for "10"
            return f"coalesce(number({left}) {sign} {value}, {left} {sign} {self._slot(_bound(wanted))}, 0)"
        return f"ifnull({left} {sign} {value}, 0)"

    def _slot(self, value: Value | RunField) -> str:
        self.parameters.append(value)
        return f"?{len(self.parameters)}"

    def _unexpected(self, part: str) -> UsageError:
        """Return the error, with advice if the part is the unit of the value before it."""
        advice = ""
        for read in (parse_size, parse_duration):
            with contextlib.suppress(ValueError):
                parse_number(self._value_before)
                read(self._value_before + part)
                advice = f" (write {self._value_before}{part} without a space)"
        return _mistake(self._text, f"unexpected {_quoted(part)}{advice}")


def _bound(value: Value) -> Value:
    """Return a value as SQLite accepts it: no undecodable bytes of names, no integers above 64 bits."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, int) and abs(value) >= _LARGEST_INTEGER:
        return math.inf if value > 0 else -math.inf
    return value


def _number(value: str | None) -> float | None:
    try:
        return None if value is None else parse_number(value)
    except ValueError:
        return None


def _mistake(text: str, what: str) -> UsageError:
    return UsageError(f"--where {_quoted(text)}: {what}.")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")

"""Which runs of many are meant: `tag.rule=align and peak>2GiB and not (state=broken or started<2026-11-01)`.

=============================  ================================================================================
part                           meaning
=============================  ================================================================================
FIELD OP VALUE                 OP is one of = != < <= > >= and ~ (holds the text, whatever the letters' case)
FIELD                          it is known, and neither empty nor 0
and, or, not, ( )              as one expects; `and` binds closer than `or`
sizes                          4096, 500MB, 2GiB, 1.5 GiB is written 1.5GiB
durations                      90, 90s, 10min, 2h, 3d
moments (`started`)            2026-11-01, 2026-11-01T12:30, or how long ago: 14d, 6h
tags                           tag.NAME; compared as numbers where both are numbers
'text', "text"                 a value with blanks or parentheses
=============================  ================================================================================

A comparison with what is not known is false, and so is its opposite with `!=`; `not` turns what it has before it.
"""

from __future__ import annotations

import re

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.units import parse_duration, parse_moment, parse_number, parse_size
from otel_memwatch.wings.index.run_fields import COLUMNS, RunField, column

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.wings.index.indexed_run import IndexedRun

    Condition = Callable[[IndexedRun], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>\(|\)|!=|<=|>=|=|<|>|~)|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<word>[^\s()=!<>~'"]+))"""
)
_DEEPEST = 100
"""Parentheses in each other: the parser and the condition call themselves for each."""
_SHOWN = 200
"""Letters that a sentence quotes of a condition."""
_COMPARE: dict[str, Callable[[object, object], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,  # type: ignore[operator]
    "<=": lambda one, other: one <= other,  # type: ignore[operator]
    ">": lambda one, other: one > other,  # type: ignore[operator]
    ">=": lambda one, other: one >= other,  # type: ignore[operator]
}


def where(text: str) -> Condition:
    """The condition that `text` stands for. Raises `UsageError` that says what cannot be understood, and where."""
    parser = _Parser(text)
    condition = parser.any_of()
    if parser.peek() is not None:
        raise parser.mistake("and, or, or the end")
    return condition


_READ: dict[str, Callable[[str], float]] = {
    "size": parse_size,
    "duration": parse_duration,
    "moment": parse_moment,
    "number": parse_number,
}


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if not found:
                raise UsageError(f"--where {self._text!r}: what is {text[position:].strip()[:20]!r}?")
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind]))
            position = found.end()
        self._next = 0

    def peek(self) -> tuple[str, str] | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def mistake(self, wanted: str) -> UsageError:
        token = self.peek()
        found = f"{token[1]!r}" if token else "the end"
        return UsageError(f"--where {self._text!r}: {wanted} is expected instead of {found}.")

    def any_of(self, depth: int = 0) -> Condition:
        if depth > _DEEPEST:
            raise UsageError(f"--where: more than {_DEEPEST} parentheses are open at once.")
        parts = [self._all_of(depth)]
        while self._word("or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _all_of(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._word("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _one(self, depth: int) -> Condition:
        negated = False
        while self._word("not"):
            negated = not negated
        if self._sign("("):
            inner = self.any_of(depth + 1)
            if not self._sign(")"):
                raise self.mistake("')'")
        else:
            inner = self._comparison()
        return (lambda row: not inner(row)) if negated else inner

    def _comparison(self) -> Condition:
        token = self.peek()
        if token is None or token[0] != "word":
            raise self.mistake("the name of a field")
        self._next += 1
        field = column(token[1])
        if field is None:
            names = ", ".join(COLUMNS)
            raise UsageError(
                f"--where {self._text!r}: there is no field {token[1]!r}.", f"there are {names}, tag.NAME"
            )
        operator = self.peek()
        if operator is None or operator[0] != "sign" or operator[1] in "()":
            return lambda row: bool(field.of(row))
        self._next += 1
        value = self.peek()
        if value is None or value[0] == "sign":
            raise self.mistake("a value")
        self._next += 1
        return self._compared(field, operator[1], value[1])

    def _compared(self, field: RunField, operator: str, text: str) -> Condition:
        if operator == "~":
            wanted = text.lower()
            return lambda row: (value := field.of(row)) is not None and wanted in str(value).lower()
        compare = _COMPARE[operator]
        if field.kind == "text":
            return lambda row: (value := field.of(row)) is not None and _as_text(compare, str(value), text)
        try:
            wanted_number = _READ[field.kind](text)
        except ValueError as error:
            raise UsageError(f"--where {self._text!r}: {error}.") from None
        return lambda row: (value := field.of(row)) is not None and compare(value, wanted_number)

    def _word(self, word: str) -> bool:
        return self._accept(("word", word))

    def _sign(self, sign: str) -> bool:
        return self._accept(("sign", sign))

    def _accept(self, token: tuple[str, str]) -> bool:
        found = self.peek()
        if found is None or (found[0], found[1].lower()) != token:
            return False
        self._next += 1
        return True


def _as_text(compare: Callable[[object, object], bool], value: str, wanted: str) -> bool:
    """Text is compared as text, and as numbers where both are: tag.size>9 holds of "10"."""
    try:
        return compare(parse_number(value), parse_number(wanted))
    except ValueError:
        return compare(value, wanted)

"""JSON by hand, for the few shapes that a line of operations has: `json` costs the program 7 ms at its import."""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know, without the 9 ms of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping

try:
    from _json import encode_basestring_ascii as _quote
except ImportError:  # another implementation of Python
    from json.encoder import encode_basestring_ascii as _quote

LONGEST_NAME = 512
LONGEST_TEXT = 4096
MOST_ATTRIBUTES = 128
MOST_ELEMENTS = 128


def quote(text: str) -> str:
    """`text` as a JSON string in ASCII; what is no Unicode text (lone surrogates) becomes question marks."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return _quote(text)


def clean_name(name: object) -> tuple[str, bool]:
    """A name that can be recorded, and whether `name` was one already."""
    if type(name) is str and 0 < len(name) <= LONGEST_NAME:
        return name, True
    text = str.__str__(name) if isinstance(name, str) else _describe(name)
    if not text:
        return "(no name)", False
    return (text[: LONGEST_NAME - 3] + "..." if len(text) > LONGEST_NAME else text), isinstance(
        name, str
    ) and (len(text) <= LONGEST_NAME)


def attributes_text(attributes: Mapping[str, object]) -> str:
    """A JSON object; values that OpenTelemetry does not know are recorded as their text, long ones cut."""
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
    if isinstance(value, float) and value - value == 0:  # neither infinite nor not a number
        return float.__repr__(value)
    if value is None:
        return "null"
    return quote(_describe(value)[:LONGEST_TEXT])


def _describe(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value is the program's, and so is whatever its __str__ raises
        return f"({type(value).__name__})"

"""Encoders and decoders of JSON from the compiled half of `json`.

`json` imports regular expressions, and compiles six. That is 4 ms for a short run, which needs none of them. Values, texts
and errors are those of `json`: any text that the compiled half refuses is decoded again there.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_json: Any
try:
    import _json
except ImportError:  # not CPython
    _json = None

_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def encoder(
    item_separator: str = ", ", key_separator: str = ": ", *, ascii_only: bool = True, finite: bool = False
) -> Callable[[Any], str]:
    """Return `json.dumps` with these separators, without its check for values that contain themselves.

    The function raises `ValueError` for an infinity or a NaN if `finite`.
    """
    try:
        escape = _json.encode_basestring_ascii if ascii_only else _json.encode_basestring
        chunks = _json.make_encoder(
            None, _refuse, escape, None, key_separator, item_separator, False, False, not finite
        )
    except (AttributeError, TypeError):
        from json import JSONEncoder

        separators = item_separator, key_separator
        return JSONEncoder(
            separators=separators, ensure_ascii=ascii_only, check_circular=False, allow_nan=not finite
        ).encode
    return lambda value: "".join(chunks(value, 0))


def decoder(parse_constant: Callable[[str], Any] = _CONSTANTS.__getitem__) -> Callable[[str], Any]:
    """Return `json.loads` for text. `parse_constant` gives the value of `NaN` and of infinities."""

    def decode_plain(text: str) -> Any:
        from json import loads

        return loads(text, parse_constant=parse_constant)

    class DecoderOptions:
        """Attributes that the scanner reads of a `JSONDecoder`."""

        strict = True
        object_hook = object_pairs_hook = array_hook = None
        parse_float, parse_int = float, int

    DecoderOptions.parse_constant = staticmethod(parse_constant)  # type: ignore[attr-defined]
    try:
        scan = _json.make_scanner(DecoderOptions)
    except (AttributeError, TypeError):
        return decode_plain

    def decode(text: str) -> Any:
        stripped = text.strip(" \t\n\r")
        try:
            value, end = scan(stripped, 0)
        except (StopIteration, ValueError, SystemError):  # the last one where it needs `json` for its error
            return decode_plain(text)
        return value if end == len(stripped) else decode_plain(text)

    return decode


def _refuse(value: object) -> None:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


loads, dumps = decoder(), encoder()
"""The functions of `json` for text."""

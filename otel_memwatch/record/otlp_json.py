"""Conversion of OTLP between JSON and protobuf messages.

The JSON form is that of proto3 with two exceptions (OTLP specification, "JSON Protobuf Encoding"): trace and span ids
are hexadecimal, and enumerations are numbers.
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

_IDS = frozenset({"traceId", "spanId", "parentSpanId"})

_M = TypeVar("_M", bound=Message)


def parse_json(text: bytes | str, message: _M) -> _M:
    """Fill `message` from OTLP JSON and return it. Raises `ValueError` for invalid input."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")  # noqa: TRY004 - callers expect ValueError
        json_format.ParseDict(_ids(value, _from_hexadecimal), message, ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError, TypeError, SystemError) as error:
        # protobuf raises SystemError for text with half a surrogate pair in place of a message.
        raise ValueError(str(error).partition("\n")[0] or "it is not OTLP") from None
    return message


def to_json(message: Message) -> dict[str, Any]:
    """Return the OTLP JSON of a message."""
    value = json_format.MessageToDict(message, use_integers_for_enums=True)
    result = _ids(value, _to_hexadecimal)
    assert isinstance(result, dict)
    return result


def _ids(value: Any, convert: Any) -> Any:
    """Convert every id in `value` in place, and return it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _IDS and isinstance(item, str):
                value[key] = convert(item)
            elif isinstance(item, (dict, list)):
                _ids(item, convert)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                _ids(item, convert)
    return value


def _from_hexadecimal(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()


def _to_hexadecimal(text: str) -> str:
    return base64.b64decode(text).hex()

"""JSON text that every parser accepts: null instead of an infinity or a NaN, which are not JSON.

Python reads 1e999 of a damaged or hostile record as infinity.
"""

from __future__ import annotations

import math

from otel_memwatch.runtime.fast_json import encoder
from otel_memwatch.runtime.typed import Any


def dumps(
    value: Any,
    *,
    indent: int | None = None,
    separators: tuple[str, str] = (", ", ": "),
    ensure_ascii: bool = True,
) -> str:
    """Return the JSON text of a value. The options are those of `json.dumps`."""
    if indent is None:
        encode = encoder(*separators, ascii_only=ensure_ascii, finite=True)
    else:
        from json import JSONEncoder  # 2 ms

        encode = JSONEncoder(indent=indent, ensure_ascii=ensure_ascii, allow_nan=False).encode
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value

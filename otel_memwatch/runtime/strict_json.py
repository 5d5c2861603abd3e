"""JSON text that every parser accepts: null instead of an infinity or a NaN, which are not JSON.

Python reads 1e999 of a damaged or hostile record as infinity.
"""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import Any


def dumps(value: Any, **options: Any) -> str:
    """Return the JSON text of a value. `options` are those of `json.dumps`."""
    import json  # 2 ms, which a run with nothing to write need not spend

    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value

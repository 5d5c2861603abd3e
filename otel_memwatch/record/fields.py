"""Fields of a JSON object, each of the kind that it should be or `None`: a reader believes no file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST = 2**63 - 1


def whole(value: Any) -> int | None:
    """A whole number that fits 64 bits, or `None`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = int(value)
    return value if -_LARGEST <= value <= _LARGEST else None


def number(value: Any) -> float | None:
    """A finite number, or `None`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def text(value: Any) -> str | None:
    """A string, or `None`."""
    return value if isinstance(value, str) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """An object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def texts(value: Any) -> tuple[str, ...]:
    """The strings of an array; empty for anything else."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

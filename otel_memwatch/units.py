"""Units, and amounts read from text: sizes, durations, shares, numbers, moments.

Options, budgets, conditions (`runs --where`) and marks of tests all read amounts here, so they accept the same texts.

========  =======================================================  =================================
amount    units                                                    examples
========  =======================================================  =================================
size      KiB, MiB, GiB ... and K, M, G ...: powers of 1024;       2GiB, 1.5 MiB, 500MB, 50M, 4096
          kB, MB, GB ...: powers of 1000; B, bytes, none: bytes
duration  ms, s (sec), m (min), h, d, w; none: seconds             90, 500ms, 10min, 1h30m
share     %                                                        5%
number    none                                                     3, 0.5, 1e3
moment    none: local time; or a duration: how long ago            2026-11-01, 2026-11-01T12:30, 14d
========  =======================================================  =================================

* The case of units does not matter, and a space before them is allowed.
* Each function raises `ValueError` with the beginning of a sentence.
* Ranges, such as "above 0", are up to the option.
* This module imports nothing slow, because options are parsed before the command starts.
"""

from __future__ import annotations

import math

SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
"""Units in which sizes are printed: powers of 1024."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZES = {"": 1, "b": 1, "byte": 1, "bytes": 1} | {
    prefix + ending: base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_DURATIONS = {
    "": 1.0, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_MOMENTS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
_LONGEST = 100
"""Largest number of characters of an amount."""
_QUOTED = 60
"""Characters that an error quotes."""


def parse_size(text: str) -> int:
    """Return bytes."""
    value = _amount(text, _SIZES)
    if value is None:
        raise ValueError(f"{_quote(text)} is not a size (write 512MiB, 2GB or 4096)")
    return round(value)


def parse_duration(text: str) -> float:
    """Return seconds. Several parts are added: "1h30m", "2 h 05 min"."""
    value = _amount(text, _DURATIONS)
    if value is None:
        value = _sum_of_parts(text)
    if value is None:
        raise ValueError(f"{_quote(text)} is not a duration (write 50ms, 10min or 2h)")
    return value


def parse_share(text: str) -> float:
    """Return a share of 0 or more: 0.05 for "5%"."""
    stripped = text.strip()
    share = _number(stripped[:-1]) if stripped.endswith("%") else None
    if share is None or share < 0:
        raise ValueError(f"{_quote(text)} is not a share such as 5%")
    return share / 100


def parse_number(text: str) -> float:
    """Return a finite number."""
    value = _number(text)
    if value is None:
        raise ValueError(f"{_quote(text)} is not a number")
    return value


def parse_moment(text: str) -> float:
    """Return Unix seconds, from local time or from the duration since then. A bare number is neither."""
    found = parse_local_time(text)
    if found is not None:
        return found
    ago = text.strip().removeprefix("-")
    if not ago[-1:].isalpha():
        raise ValueError(f"{_quote(text)} is not a moment (write 2026-11-01, 2026-11-01T12:30 or 14d)")
    import time

    return time.time() - parse_duration(ago)


def parse_local_time(text: str) -> float | None:
    """Return Unix seconds, from "2026-11-01 10:00:00" or a part of it; `None` for other texts."""
    import time

    stripped = text.strip()
    if not stripped[:4].isdigit() or len(stripped) > _LONGEST:
        return None
    for form in _MOMENTS:
        try:
            return time.mktime(time.strptime(stripped, form))
        except (ValueError, OverflowError):
            continue
    return None


def _amount(text: str, units: dict[str, int] | dict[str, float]) -> float | None:
    """Return a number with one of these units; `None` for other texts."""
    lowered = text[: _LONGEST + 1].strip().lower()
    number = lowered.rstrip(_LETTERS)
    factor, value = units.get(lowered[len(number) :]), _number(number)
    if factor is None or value is None or not math.isfinite(value * factor):
        return None
    return value * factor


def _sum_of_parts(text: str) -> float | None:
    """Return the sum of several durations, each with its unit; `None` for other texts."""
    lowered = "".join(text[: _LONGEST + 1].lower().split())
    total, start = 0.0, 0
    while start < len(lowered):
        unit = start
        while unit < len(lowered) and lowered[unit] in "0123456789.":
            unit += 1
        end = unit
        while end < len(lowered) and lowered[end] in _LETTERS:
            end += 1
        value = _amount(lowered[start:end], _DURATIONS)
        if unit in (start, end) or value is None:
            return None
        total, start = total + value, end
    return total if lowered else None


def _number(text: str) -> float | None:
    # Longer texts are refused: converting thousands of digits takes long.
    if len(text) > _LONGEST:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _quote(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")

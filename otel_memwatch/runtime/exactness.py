"""Definition of "exact" for processes, trees, operations and imports.

A figure is exact if the truth is at most 1 MiB or 0.5 % of it away, whichever is larger. Otherwise it is a range. The
watched program imports this too, and `_native.c` has the same constants.
"""

EXACT_BYTES = 1 << 20
"""Bytes by which an exact figure may be off, whatever its size."""
EXACT_PARTS = 200
"""The part of an exact figure by which it may be off: one in so many, if that is more than `EXACT_BYTES`."""


def is_small(error: int, value: int) -> bool:
    """Return whether a figure of `value` bytes that is off by at most `error` bytes is exact.

    Examples: 1 MiB of 69 MiB is small, 1.1 MiB is not; of 400 MiB, 2 MiB are small.
    """
    return error <= EXACT_BYTES or error * EXACT_PARTS <= value


def is_exact(value: int, low: int, high: int) -> bool:
    """Return whether a figure is exact if the truth lies between `low` and `high`."""
    return is_small(max(value - low, high - value), value)

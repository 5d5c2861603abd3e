"""Names of operations that count as one."""

from __future__ import annotations


def series_name(name: str) -> str:
    """The name without the number at its end: "epoch" of "epoch 12" and of "epoch_12"; a name that is a number stays."""
    return name.rstrip("0123456789").rstrip(" _-#.:/") or name

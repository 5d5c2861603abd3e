"""The fields of an operation's two lines, in the order in which they are written. `format.py` says what each means.

Whoever writes such lines (Python and C code in the target, `otel-memwatch mark`) goes by these two tables.
"""

from __future__ import annotations

OPENING = ("open", "time", "name", "trace", "span", "parent", "thread", "rss", "segment")
"""Behind them, where there are any: `attributes`, `exported`."""

CLOSING = (
    "close",
    "time",
    "status",
    "error",
    "rss",
    "segment",
    "peak",
    "low",
    "high",
    "certainty",
    "cpu_user",
    "cpu_system",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "write_bytes",
    "read_chars",
    "write_chars",
)
"""Behind them, where there are any: `gpu`, `attributes`."""

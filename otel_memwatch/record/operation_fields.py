"""Fields of an operation's two lines, in writing order. `format.py` describes each.

All writers of such lines use these two tables: Python and C code in the target, and `otel-memwatch mark`.
"""

from __future__ import annotations

OPENING = ("open", "time", "name", "trace", "span", "parent", "thread", "rss", "segment")
"""Optional fields follow: `attributes`, `exported`."""

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
"""Optional fields follow: `gpu`, `attributes`."""

"""The target and all its descendants, read from /proc.

`tree` has the steps of a tick; each of the others does one of them. `files` keeps descriptors, `discovery` finds
processes, `member` reads one, `accounting` adds up what only grows, `ledgers` bound what was never seen, `windows` reset
watermarks (exact), `records` are written of single processes, `columns` holds what of it all is published.
"""

from __future__ import annotations

from otel_memwatch.monitor.sources.process_tree.tree import ProcessTree
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sources import Context


def open_source(context: Context) -> ProcessTree:
    """Open the source; raises `Unavailable` without /proc, and when there is no such process to attach to."""
    return ProcessTree(context)

"""The target and all its descendants, read from /proc.

`files` keeps descriptors, `discovery` finds processes, `member` reads one, `accounting` adds up what only grows,
`unobserved` bounds what was never seen, `windows` resets watermarks (exact), `records` tells of single processes,
`tree` puts them together once a tick, `tick` holds what that finds out, `columns` says what of it is published.
"""

from __future__ import annotations

from otel_memwatch.monitor.sources.process_tree.tree import ProcessTree
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sources import Context


def open_source(context: Context) -> ProcessTree:
    """Open the source; raises `Unavailable` without /proc, and when there is no such process to attach to."""
    return ProcessTree(context)

"""The target and all its descendants, read from /proc.

`tree` has the steps of a tick; each of the others does one of them. `files` keeps descriptors, `discovery` finds
processes, `member` reads one, `accounting` adds up what only grows, `ledgers` bound what was never seen,
`records` are written of single processes, `columns` holds what of it all is published.
`waited_for` stands in where /proc cannot be read.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources.process_tree.tree import ProcessTree
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.waited_for import WaitedFor


def open_source(context: Context) -> ProcessTree | WaitedFor:
    """Open the source; raises `Unavailable` when there is no such process to attach to.

    Without a /proc that shows our processes, `Unavailable` too, except for children of ours: the kernel tells of them.
    """
    if shows_others(context.proc):
        why = f"{context.proc} is that of another pid namespace"
    elif not os.path.exists(f"{context.proc}/loadavg"):
        why = f"{context.proc} is not mounted"
    else:
        return ProcessTree(context)
    if not context.adopt:
        raise Unavailable(f"{why}.", "unshare --mount-proc, or mount -t proc proc /proc")
    from otel_memwatch.monitor.sampling.sources.process_tree.waited_for import WaitedFor

    return WaitedFor(context, why)

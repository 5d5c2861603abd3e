"""The target and all its descendants, read from /proc.

`sample_steps` has the steps of a sample. Other modules do one step each, or a part of one:

* Reading of /proc: `proc_files` keeps descriptors open, `member` reads one process, `memory_scan` reads the memory of all.
* Membership: `membership` follows the processes of the tree, `discovery` finds new ones, `accounting` adds up counters, `sleep` shows that none has run.
* Ledgers: `ledgers` bound the processes that no sample saw.
* Bounds of memory needed, for runs without a cgroup: `needed_memory` is the step. `fault_bounds` has the upper bound, with
  `held_memory` at a scan; `families` has the lower bound and the estimate. `shared_memory` has the memory that processes
  share, and finds memory without page faults; `allocations` reads the counters of the machine.
* Output: `columns` lists the published values, `records` describe single processes, `resets` find lost watermarks.

`waited_for` is the substitute if /proc cannot be read.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources.process_tree.sample_steps import ProcessTree
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.waited_for import WaitedFor


def open_source(context: Context) -> ProcessTree | WaitedFor:
    """Open the source. Raises `Unavailable` if the process to attach to does not exist.

    Also raises `Unavailable` if /proc does not show our processes. The exception are our own children: wait4 reports them.
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

"""Properties of this kernel that make figures less certain."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    PER_THREAD_PAGES,
    has_thread_counters,
    parse_release,
    processors,
    rss_error,
)
from otel_memwatch.runtime.procfs.mounted import hides_others, shows_others

PEAK_FILE = (5, 19)
"""First release in which version 2 cgroups have a watermark."""
MANY_CPUS_ERROR = 4 << 20
"""Bytes of possible error from which the report mentions it."""


def quirks(proc: str | os.PathLike[str] = "/proc", release: str | None = None) -> list[str]:
    """Return sentences on the properties of this machine that make figures less certain (50 us)."""
    release = os.uname().release if release is None else release
    found = []
    if has_thread_counters(release):
        found.append(
            f"Linux {release} counts resident memory in parts of up to {PER_THREAD_PAGES * PAGE_SIZE >> 10} KiB per thread: peaks "
            "of processes are ranges (since Linux 6.2 the number of processors decides)."
        )
    elif rss_error() >= MANY_CPUS_ERROR:
        found.append(
            f"With {processors()} processors, watermarks of processes may be off by up to {rss_error() >> 20} MiB."
        )
    if not os.path.exists(f"{proc}/self/io"):
        found.append("The kernel does not count I/O of processes (CONFIG_TASK_IO_ACCOUNTING).")
    if not os.path.exists(f"{proc}/self/clear_refs"):
        found.append(
            "The kernel cannot reset watermarks (CONFIG_PROC_PAGE_MONITOR): peaks of operations are ranges."
        )
    if not shows_others(proc) and not os.path.exists(f"{proc}/self/task/{os.getpid()}/children"):
        found.append(
            "The kernel does not list children (CONFIG_PROC_CHILDREN): all processes are searched, which costs more."
        )
    if hides_others(proc):
        found.append(
            "/proc hides processes of other users (hidepid), including setuid programs. A run with such processes is measured by "
            "wait4 alone, without an upper bound. Root and CAP_SYS_PTRACE see all processes, and usually the group in the mount's gid=."
        )
    if parse_release(release) < PEAK_FILE:
        found.append(f"Linux {release} has no watermark for version 2 control groups (since Linux 5.19).")
    return found

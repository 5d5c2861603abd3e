"""Ends of children, with their last figures, read while they are zombies; and our end, as the command ended."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time

from otel_memwatch.errors import shell_code
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.kernel import MAXRSS_BYTES, monotonic_start
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from otel_memwatch.model import ChildExit

_BLOCK = 512
"""Bytes of one block of I/O in a rusage on Linux."""


def peek() -> int | None:
    """Return the pid of a dead child that is not reaped yet; `None`: none."""
    if not hasattr(os, "waitid"):
        return None
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    return dead.si_pid if dead else None


def reap(main: int) -> ChildExit | None:
    """Reap one dead child and return its figures; `None` if no child is dead.

    Its files in /proc are read first: they disappear with the zombie.
    """
    pid = peek()
    if pid is None and hasattr(os, "waitid"):
        return None
    now = time.monotonic()  # reading takes milliseconds while another thread imports modules
    names = "stat", "io", "status", "cgroup"
    stat, io, status, cgroup = (None if pid is None else _read(pid, name) for name in names)
    try:
        dead, wait_status, usage = os.wait4(-1 if pid is None else pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if dead == 0:
        return None
    from otel_memwatch.model import (
        ChildExit,
    )  # loaded by the monitor by now, so the command's start need not wait

    code = os.waitstatus_to_exitcode(wait_status)
    return ChildExit(
        pid=dead,
        time=now,
        start=_start(stat),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        max_rss=usage.ru_maxrss * MAXRSS_BYTES,
        cpu_user=usage.ru_utime,
        cpu_system=usage.ru_stime,
        minor_faults=usage.ru_minflt,
        major_faults=usage.ru_majflt,
        stat=stat,
        io=io,
        status=status,
        main=dead == main,
        cgroup=cgroup,
        read_bytes=usage.ru_inblock * _BLOCK if sys.platform == "linux" else None,
        write_bytes=usage.ru_oublock * _BLOCK if sys.platform == "linux" else None,
    )


def own_max_rss() -> int:
    """Return the largest RSS of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES


def end_like(end: ChildExit) -> NoReturn:
    """End this process as the child ended: with its exit code, or by the same signal.

    - We write no core file.
    - PID 1 cannot end itself by a signal. There the exit code is 128 + the signal.
    - Nothing runs after this, not even atexit functions: flush and close first.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if end.signal is None:
        os._exit(end.exit_code or 0)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # A core_pattern that names a program ignores RLIMIT_CORE.
    system_calls.prctl(system_calls.PR_SET_DUMPABLE, 0)
    with contextlib.suppress(OSError, ValueError):
        signal.signal(end.signal, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
        os.kill(os.getpid(), end.signal)
    os._exit(shell_code(end.signal))


def _read(pid: int, name: str) -> bytes | None:
    if shows_others():  # another process has this pid there
        return None
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def _start(stat: bytes | None) -> float | None:
    """Return the monotonic seconds of a process's start, from its stat; `None`: unknown."""
    if stat is None:
        return None
    try:
        return monotonic_start(int(stat[stat.rindex(b")") + 2 :].split()[19]))
    except (ValueError, IndexError):
        return None

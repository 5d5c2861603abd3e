"""Supervision of the running command: pass on signals, stop when it stops, reap its tree, end as it ended."""

from __future__ import annotations

import os
import resource
import sys
import time

from otel_memwatch.errors import shell_code
from otel_memwatch.monitor.run.supervise import signals
from otel_memwatch.monitor.run.supervise.signals import Witness
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.kernel import MAXRSS_BYTES, monotonic_start, read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.model import ChildExit


class Target:
    """The command that `launch` started."""

    def __init__(
        self,
        pid: int,
        started: float,
        floor: int,
        misplaced: str | None,
        *,
        faults_before: int | None = None,
        witness: Witness,
        strangers: frozenset[int],
        seen_late: bool = False,
    ) -> None:
        self.pid = pid
        self.started = started
        """Monotonic seconds, just before exec."""
        self.floor = floor
        """Bytes of RSS that the child had from us before exec: a lower limit of its `max_rss`, whatever it used."""
        self.misplaced = misplaced
        """Error of `before_exec`; `None`: none."""
        self.faults_before = faults_before
        """Page faults of the child before it entered the run's cgroup; `None`: not counted."""
        self._witness = witness
        self._seen_late = seen_late
        """True if the target may have ended before this process could wait for it. Then the witness knows the moment."""
        self.keeps_witness = False
        """True if the witness outlives the target, until `end_witness`."""
        self.helpers = strangers if witness.pid is None else strangers | {witness.pid}
        """Pids of our children that are never part of the target's tree."""

    def wait(
        self, on_exit: Callable[[ChildExit], None], takes: Callable[[int], bool] = lambda _: False
    ) -> ChildExit:
        """Supervise until the target ends; return its end. Does not wait for daemons that it leaves behind.

        Call it in the thread that called `launch`. It reaps every child of this process, so no other code can wait for
        one meanwhile.

        Args:
            on_exit: called for every reaped process, in order: the target, orphans of its tree, and `helpers`. The
                figures of `helpers` are also in our own sums over children.
            takes: called for every signal to the target; returns true if the target does not get it from here.

        """
        while True:
            end = self._reap(on_exit)
            if end is not None:
                if not self.keeps_witness and (witness := self._witness.dismiss()) is not None:
                    with suppress(ChildProcessError):
                        if hasattr(os, "waitid"):
                            os.waitid(os.P_PID, witness, os.WEXITED | os.WNOWAIT)
                    self._reap(on_exit)
                return end
            follow_stop(self.pid)
            taken = signals.take_next()
            if self._is_for_target(taken) and not _is_overtaken(taken) and not takes(taken.number):
                # The target is not reaped yet, so its pid is valid. A target of another user is out of reach, as without us.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(self.pid, taken.number)

    def end_witness(self) -> None:
        """End the witness, if it was kept."""
        self._witness.end()

    def _reap(self, on_exit: Callable[[ChildExit], None]) -> ChildExit | None:
        """Reap all dead children; return the target's end if it is among them."""
        end: ChildExit | None = None
        while (dead := reap(self.pid)) is not None:
            if dead.pid == self._witness.pid:
                self._witness.forget()
            if dead.main and self._seen_late:
                dead = dead._replace(time=min(dead.time, self._witness.end_of_target() or dead.time))
            on_exit(dead)
            end = dead if dead.main else end
        return end

    def _is_for_target(self, taken: signals.ReceivedSignal) -> bool:
        """Return whether the signal was sent to us alone, not to our group: then the target has to get it from us."""
        if taken.child_changed:
            return False
        seen = self._witness.saw(taken.number, taken.sender)
        if seen or taken.sender in (self.pid, os.getpid()):
            return False
        if taken.code == signals.SI_KERNEL:
            # The terminal's keys signal the group. A hang-up signals only the leader of the session.
            return taken.number in (signal.SIGHUP, signal.SIGCONT) and os.getsid(0) == os.getpid()
        return (
            taken.code is not None or self._witness.pid is not None or taken.number not in signals.FROM_KEYS
        )


def follow_stop(pid: int) -> None:
    """Stop after our child `pid` has stopped, if our parent is a shell with job control.

    Other parents would not continue us together with the child.
    """
    if not hasattr(os, "waitid"):
        return
    with suppress(ChildProcessError):
        stopped = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
        if stopped and _is_job_of_parent():
            _stop(stopped.si_status)


def _is_overtaken(taken: signals.ReceivedSignal) -> bool:
    """Return whether the signal is a SIGCONT after which the terminal has stopped the group again.

    The stop discards every pending SIGCONT, also in the witness, so this one looks as if it was sent to us alone. If we
    passed it on, it would undo the stop.
    """
    return taken.number == signal.SIGCONT and bool(signal.sigpending() & signals.JOB_CONTROL)


def _is_job_of_parent() -> bool:
    """Return whether our parent runs us as a job: in its session, in another process group."""
    parent = os.getppid()
    try:
        return bool(parent) and os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False


def _stop(number: int) -> None:
    """Stop this process by the signal, until it is continued."""
    signals.discard(signals.JOB_CONTROL)  # those from the terminal, which would stop us a second time
    if signal.SIGCONT in signal.sigpending():
        return
    if signal.getsignal(number) is not signal.SIG_DFL:
        number = signal.SIGSTOP
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


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


def has_ended(child: int) -> bool:
    """Return whether a child of ours has ended. It is not reaped."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except OSError:
        return False


def reap(main: int) -> ChildExit | None:
    """Reap one dead child and return its figures; `None` if no child is dead.

    Its files in /proc are read first: they disappear with the zombie.
    """
    pid = peek()
    if pid is None and hasattr(os, "waitid"):
        return None
    now = time.monotonic()  # reading takes milliseconds while another thread imports modules
    names = "stat", "io", "status", "cgroup"
    sched = None if pid is None or pid != main else _read(pid, "sched")
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
        sched=sched,
        switches=usage.ru_nvcsw + usage.ru_nivcsw,
    )


def wait_unsupervised(pid: int) -> ChildExit:
    """Wait for our child `pid`, if the system refuses a call of `Target.wait`; signals to us reach it by handlers.

    Keys of the terminal signal the whole group, so we ignore them.
    """
    from otel_memwatch.model import ChildExit

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda taken, _frame: os.kill(pid, taken))
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.TAKEN)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return ChildExit(
        pid=pid,
        time=time.monotonic(),
        start=None,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        max_rss=usage.ru_maxrss * MAXRSS_BYTES,
        cpu_user=usage.ru_utime,
        cpu_system=usage.ru_stime,
        minor_faults=usage.ru_minflt,
        major_faults=usage.ru_majflt,
        stat=None,
        io=None,
        status=None,
        main=True,
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
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if end.signal is None:
        os._exit(end.exit_code or 0)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # A core_pattern that names a program ignores RLIMIT_CORE.
    system_calls.prctl(system_calls.PR_SET_DUMPABLE, 0)
    with suppress(OSError, ValueError):
        signal.signal(end.signal, signal.SIG_DFL)
    with suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
        os.kill(os.getpid(), end.signal)
    os._exit(shell_code(end.signal))


def _read(pid: int, name: str) -> bytes | None:
    if shows_others():  # another process has this pid there
        return None
    try:
        return read_once(f"/proc/{pid}/{name}")
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

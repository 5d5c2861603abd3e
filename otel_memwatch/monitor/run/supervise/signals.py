"""Signals: what we inherited, what we take, who sent it."""

from __future__ import annotations

import os
import signal
import sys

from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.typed import NamedTuple

JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""Signals that stop a job."""

FROM_KEYS = JOB_CONTROL | {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
"""Signals that the terminal sends to the foreground group, when the system does not say who sent them."""

TAKEN = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that are blocked in every thread of ours and taken by `take_next`.

The faults are among them because they may be sent as well (a watchdog's SIGABRT, say). One that is our own
ends us all the same: the kernel does not let a fault be blocked. So are the stop signals: whether this job
stops is the target's decision (it may ignore Ctrl-Z, or tidy the screen first), and we follow it.
"""

SI_KERNEL = 0x80
"""`si_code` of what the kernel sends: for us, the terminal's keys and hang-up, to the whole foreground group."""

_PYTHON_IGNORES = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Taken(NamedTuple):
    """A signal that was sent to us."""

    number: int
    code: int | None
    """`si_code`; `None` where the system does not say."""
    sender: int | None
    """`si_pid`; 0: the kernel, or a process outside our pid namespace; `None`: not known."""

    @property
    def child_changed(self) -> bool:
        """The kernel's own SIGCHLD (or perhaps, where the system does not say), not one that somebody sent."""
        return self.number == signal.SIGCHLD and (self.code is None or self.code > 0)


class Inherited(NamedTuple):
    """What a command started in our place would have inherited."""

    mask: frozenset[int]
    ignored: frozenset[int]
    timers: tuple[tuple[int, float, float], ...]
    """Running interval timers (which, seconds to the next, interval): they survive exec, but not fork."""


def hold() -> Inherited:
    """Block `TAKEN` in this thread, stop our timers, and give what we had inherited.

    Call it in the main thread before any other thread exists: threads inherit the mask.
    """
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    ignored.difference_update(number for number in _PYTHON_IGNORES if not _ignored_by_parent(number))
    timers = tuple((which, *signal.setitimer(which, 0)) for which in _TIMERS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, children would vanish without their figures
    if sys.platform != "linux":
        _keep_from_being_discarded(ignored)
    return Inherited(mask, frozenset(ignored), timers)


def let_go(inherited: Inherited) -> None:
    """Undo `hold`: for a child before exec, and for ourselves when nothing was started.

    Handlers of this program become the default, as exec would make them; the mask comes last.
    """
    for number in TAKEN:
        if number in inherited.ignored:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    for which, seconds, interval in inherited.timers:
        if seconds:
            signal.setitimer(which, seconds, interval)
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited.mask)


def take_next() -> Taken:
    """Wait for the next signal of `TAKEN`."""
    if sys.platform == "darwin":
        return Taken(signal.sigwait(TAKEN), None, None)
    info = signal.sigwaitinfo(TAKEN)
    return Taken(info.si_signo, info.si_code, info.si_pid)


def discard(numbers: frozenset[signal.Signals]) -> None:
    """Forget those of the blocked signals that are pending."""
    for number in signal.sigpending() & numbers:
        signal.sigwait({number})


def _ignored_by_parent(number: int) -> bool:
    """Whether a signal that Python ignores on its own account was ignored when we were started.

    Python has overwritten it before our first line runs, so the parent's state is the best evidence: a shell
    passes on what it ignores. Not so a Python parent, which ignores these itself and resets them in its
    children. A program that set it and then became us (`env --ignore-signal=PIPE otel-memwatch ...`) leaves
    no trace: then, as without /proc, the default is assumed.
    """
    parent = os.getppid()
    if shows_others():
        return False
    try:
        if os.path.basename(os.readlink(f"/proc/{parent}/exe")).startswith(("python", "pypy")):
            return False
        with open(f"/proc/{parent}/status", "rb") as file:
            line = next(line for line in file if line.startswith(b"SigIgn:"))
        return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def _keep_from_being_discarded(ignored: set[int]) -> None:
    """Give signals that are ignored, by default or by inheritance, a handler that never runs.

    Linux keeps blocked signals pending whatever their disposition; other systems drop what is ignored.
    """
    names = ("SIGCHLD", "SIGWINCH", "SIGURG", "SIGCONT", "SIGIO", "SIGINFO")
    for number in {getattr(signal, name) for name in names if hasattr(signal, name)} | ignored:
        signal.signal(number, lambda _number, _frame: None)

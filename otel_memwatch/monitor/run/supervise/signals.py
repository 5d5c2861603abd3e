"""Signals of the supervisor: inherited state, signals taken, and their senders."""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import NamedTuple

JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""Signals that stop a job."""

FROM_KEYS = JOB_CONTROL | {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
"""Signals that count as sent by the terminal to the foreground group if the system does not report the sender."""

TAKEN = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that are blocked in all our threads and taken by `take_next`.

- Faults are included because another process can send them, for example a watchdog's SIGABRT. A fault of this program
  still ends it, since the kernel does not let a fault be blocked.
- Stop signals are included because the target decides whether the job stops: it may ignore Ctrl-Z, or tidy the screen
  first. We follow it.
"""

SI_KERNEL = 0x80
"""`si_code` of signals from the kernel: here, keys of the terminal and its hang-up, for the whole foreground group."""

_PYTHON_IGNORES = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ReceivedSignal(NamedTuple):
    """A signal that was sent to us."""

    number: int
    code: int | None
    """`si_code`; `None` if the system does not report it."""
    sender: int | None
    """`si_pid`; 0: the kernel, or a process outside our pid namespace; `None`: unknown."""

    @property
    def child_changed(self) -> bool:
        """Return whether the kernel sent this SIGCHLD; true as well if the system does not report the sender."""
        return self.number == signal.SIGCHLD and (self.code is None or self.code > 0)


class InheritedState(NamedTuple):
    """State that a command started in our place would have inherited."""

    mask: frozenset[int]
    ignored: frozenset[int]
    timers: tuple[tuple[int, float, float], ...]
    """Running interval timers: kind, seconds to the next expiry, interval. They survive exec, but not fork."""


def hold() -> InheritedState:
    """Block `TAKEN` in this thread and stop our timers; return the inherited state.

    Call it in the main thread before any other thread exists: threads inherit the mask.
    """
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    ignored.difference_update(number for number in _PYTHON_IGNORES if not _ignored_by_parent(number))
    timers = tuple((which, *signal.setitimer(which, 0)) for which in _TIMERS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, children vanish without their figures
    if sys.platform != "linux":
        _keep_from_being_discarded(ignored)
    return InheritedState(mask, frozenset(ignored), timers)


def let_go(inherited: InheritedState) -> None:
    """Undo `hold`: in a child before exec, and in this process if no command was started.

    Handlers of this program become the default, as by exec. The mask is last.
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


def take_next() -> ReceivedSignal:
    """Wait for the next signal of `TAKEN`."""
    if sys.platform == "darwin":
        return ReceivedSignal(signal.sigwait(TAKEN), None, None)
    info = signal.sigwaitinfo(TAKEN)
    return ReceivedSignal(info.si_signo, info.si_code, info.si_pid)


def discard(numbers: frozenset[signal.Signals]) -> None:
    """Discard these signals if they are pending."""
    for number in signal.sigpending() & numbers:
        signal.sigwait({number})


def _ignored_by_parent(number: int) -> bool:
    """Return whether a signal that Python always ignores was already ignored at our start.

    Python changes it before our first line runs, so the parent's state is the best evidence:

    - A shell passes on the signals that it ignores.
    - A Python parent ignores these signals itself and resets them in its children.
    - A program that ignored it and then became us (`env --ignore-signal=PIPE otel-memwatch ...`) leaves no trace. Then,
      as without /proc, the default is assumed.
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
    """Install a handler that never runs for signals that are ignored, by default or by inheritance.

    Linux keeps blocked signals pending with any disposition; other systems drop ignored ones.
    """
    names = ("SIGCHLD", "SIGWINCH", "SIGURG", "SIGCONT", "SIGIO", "SIGINFO")
    for number in {getattr(signal, name) for name in names if hasattr(signal, name)} | ignored:
        signal.signal(number, lambda _number, _frame: None)

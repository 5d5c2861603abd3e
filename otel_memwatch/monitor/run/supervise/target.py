"""Supervision of the running command: pass on signals, stop when it stops, reap its tree."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from otel_memwatch.monitor.run.supervise import ending, signals
from otel_memwatch.monitor.run.supervise.witness import Witness
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
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
        witness: Witness,
        strangers: frozenset[int],
    ) -> None:
        self.pid = pid
        self.started = started
        """Monotonic seconds, just before exec."""
        self.floor = floor
        """Bytes of RSS that the child had from us before exec: a lower limit of its `max_rss`, whatever it used."""
        self.misplaced = misplaced
        """Error of `before_exec`; `None`: none."""
        self._witness = witness
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
                if not self.keeps_witness:
                    self._end_witness(on_exit)
                return end
            follow_stop(self.pid)
            taken = signals.take_next()
            if self._is_for_target(taken) and not _is_overtaken(taken) and not takes(taken.number):
                # The target is not reaped yet, so its pid is valid. A target of another user is out of reach, as without us.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self.pid, taken.number)

    def end_witness(self) -> None:
        """End the witness, if it was kept."""
        self._witness.end()

    def _reap(self, on_exit: Callable[[ChildExit], None]) -> ChildExit | None:
        """Reap all dead children; return the target's end if it is among them."""
        end: ChildExit | None = None
        while (dead := ending.reap(self.pid)) is not None:
            if dead.pid == self._witness.pid:
                self._witness.forget()
            on_exit(dead)
            end = dead if dead.main else end
        return end

    def _end_witness(self, on_exit: Callable[[ChildExit], None]) -> None:
        pid = self._witness.dismiss()
        if pid is None:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) if hasattr(os, "waitid") else None
        self._reap(on_exit)

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
    with contextlib.suppress(ChildProcessError):
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

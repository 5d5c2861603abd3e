"""See the target through: pass signals on, stop when it stops, reap the tree."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from otel_memwatch.monitor.run.supervise import ending, signals
from otel_memwatch.monitor.run.supervise.witness import Witness
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
        """Bytes: RSS that the child had from us before exec. Its `max_rss` is never less, whatever it used."""
        self.misplaced = misplaced
        """What `before_exec` raised; `None`: nothing."""
        self._witness = witness
        self.keeps_witness = False
        """Whether the witness stays beyond the target's end, until `end_witness`."""
        self.helpers = strangers if witness.pid is None else strangers | {witness.pid}
        """Pids of our children that are not the target's: never part of its tree."""

    def wait(
        self, on_exit: Callable[[ChildExit], None], on_signal: Callable[[int], None] | None = None
    ) -> ChildExit:
        """Supervise until the target ends, and give its end. Daemons that it left behind are not waited for.

        Call it in the thread that called `launch`. Every child is reaped here: while it runs, nobody else in
        this process can wait for children.

        Args:
            on_exit: called for every process reaped, in the order of reaping: the target, orphans of its tree, and
                `helpers`, whose figures are in our own sums over children as well.
            on_signal: called after a signal was passed on to the target.
        """
        while True:
            end = self._reap(on_exit)
            if end is not None:
                if not self.keeps_witness:
                    self._end_witness(on_exit)
                return end
            self._follow_stop()
            taken = signals.take_next()
            if self._is_for_target(taken) and not _is_overtaken(taken):
                self._send(taken.number)
                if on_signal is not None:
                    on_signal(taken.number)

    def end_witness(self) -> None:
        """End the process that stood in the group, where it was kept."""
        self._witness.end()

    def _reap(self, on_exit: Callable[[ChildExit], None]) -> ChildExit | None:
        """Reap all that are dead; the target's end when it is among them."""
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

    def _is_for_target(self, taken: signals.Taken) -> bool:
        """Whether it was sent to us and not to our group, and so is meant for the target, which has not got it."""
        if taken.child_changed:
            return False
        seen = self._witness.saw(taken.number, taken.sender)
        if seen or taken.sender in (self.pid, os.getpid()):
            return False
        if taken.code == signals.SI_KERNEL:
            # The terminal's keys go to the group. A hang-up goes to the leader of the session alone.
            return taken.number in (signal.SIGHUP, signal.SIGCONT) and os.getsid(0) == os.getpid()
        return (
            taken.code is not None or self._witness.pid is not None or taken.number not in signals.FROM_KEYS
        )

    def _send(self, number: int) -> None:
        # Not reaped yet, so the pid is still its own. A target of another user cannot be reached, as without us.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def _follow_stop(self) -> None:
        """When the target has stopped, stop as well if a shell with job control looks at us.

        Without such a parent nobody would continue us together with the target: then we go on.
        """
        if not hasattr(os, "waitid"):
            return
        with contextlib.suppress(ChildProcessError):
            stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
            if stopped and _is_job_of_parent():
                _stop(stopped.si_status)


def _is_overtaken(taken: signals.Taken) -> bool:
    """Whether it is a continuation after which the terminal has stopped the group again.

    The later stop has wiped the continuation out wherever it was still pending, in the witness too, so that it looks
    as if it had been for us alone; passed on now it would continue what the stop has stopped.
    """
    return taken.number == signal.SIGCONT and bool(signal.sigpending() & signals.JOB_CONTROL)


def _is_job_of_parent() -> bool:
    """Whether our parent runs us as a job: in its session, in a group other than its own."""
    parent = os.getppid()
    try:
        return bool(parent) and os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False


def _stop(number: int) -> None:
    """Stop this process by that signal until it is continued."""
    signals.discard(signals.JOB_CONTROL)  # the terminal's own, which would stop us a second time
    if signal.SIGCONT in signal.sigpending():
        return
    if signal.getsignal(number) is not signal.SIG_DFL:
        number = signal.SIGSTOP
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)

"""Signals of the supervisor: inherited state, signals taken, their senders, and whether the target got them too."""

from __future__ import annotations

import os
import select
import sys
import time

from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.light import ExitStack, suppress
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import NamedTuple, NoReturn

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
_IGNORED = ("SIGCHLD", "SIGWINCH", "SIGURG", "SIGCONT", "SIGIO", "SIGINFO")
"""Signals that are ignored by default."""
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
        # Linux keeps blocked signals pending with any disposition; other systems drop ignored ones, by default or by
        # inheritance, unless a handler is installed. This one never runs.
        for number in {getattr(signal, name) for name in _IGNORED if hasattr(signal, name)} | ignored:
            signal.signal(number, lambda _number, _frame: None)
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


_NAME = b"signal-witness"
_COMPILED = f"{__file__.rpartition('/run/')[0]}/launcher/recipe"
"""Program that stands as a witness under this name; it may be absent. A fork has all our memory, and copies what we change."""
_PATIENCE = 1.0
"""Seconds to wait for an answer. A witness that does not answer in time is dismissed."""
_GRACE = 0.003
"""Seconds before a second question: `kill -1` and service managers signal one process after the other."""
_QUEUED = getattr(signal, "SIGRTMIN", signal.NSIG)
_ASK, _ASK_END, _END = b"?", b"!", b"."


class Witness:
    """Helper process that shows whether a signal was sent to us alone or to our whole process group.

    The target is in our process group, as it would be without us.

    - A signal to the group (`kill %1`, a closing terminal, `os.killpg`, `timeout`) reaches the target directly. If we
      passed on our copy, it would arrive twice. Many programs take a second SIGINT or SIGTERM as the order to abort
      the clean-up that the first one started.
    - A signal to us alone (`kill PID`) does not reach the target, so we have to pass it on.

    The kernel does not report the number of receivers. The witness is a third process of the group, which blocks every
    signal, does nothing else, and ends when we do. After each signal that we take we ask it through a pipe for its
    pending signals. If the same signal from the same sender is among them, the target has it too.

    Start it in the main thread, before other threads, with all signals blocked; it keeps them blocked. The kernel
    signals the newest process of a group first. So a signal to the group reaches the witness before us.
    """

    def __init__(self, *, start: bool = True) -> None:
        self.pid: int | None = None
        """`None`: not started, or gone."""
        self._ask = self._answers = -1
        self._seen: list[tuple[int, int]] = []
        """Number and sender of each signal that the witness received and that we have not taken yet."""
        if start:
            with suppress(OSError):
                self._start()

    @classmethod
    def adopt(cls, pid: int, ask: int, answers: int) -> Witness:
        """Return the witness that `recipe.c` has started; `pid` -1: none."""
        witness = cls(start=False)
        if pid > 0:
            witness.pid, witness._ask, witness._answers = pid, ask, answers
            os.set_inheritable(ask, False)
            os.set_inheritable(answers, False)
        return witness

    def _start(self) -> None:
        """Start the process. Raises `OSError` if none is left, or no descriptor: then every answer is no."""
        with ExitStack() as theirs, ExitStack() as ours:
            questions, self._ask = os.pipe()
            theirs.callback(os.close, questions)
            ours.callback(os.close, self._ask)
            self._answers, answers = os.pipe()
            theirs.callback(os.close, answers)
            ours.callback(os.close, self._answers)
            try:
                pipes = [(os.POSIX_SPAWN_DUP2, questions, 0), (os.POSIX_SPAWN_DUP2, answers, 1)]
                pid = os.posix_spawn(_COMPILED, [_NAME], {}, file_actions=pipes)
            except OSError:
                pid = os.fork()
            if pid == 0:
                _stand(questions, answers)
            self.pid = pid
            ours.pop_all()

    def saw(self, number: int, sender: int | None) -> bool:
        """Return whether the group got this signal, which we have just taken; false if the witness is gone.

        Takes about 0.1 ms, and 3 ms more if the answer is no. Ask for every signal taken; otherwise an old one would
        remain in memory. Two signals within that time may arrive as one at the witness. In doubt the answer is no:
        a duplicate signal does less harm than a lost one.
        """
        seen = self._heard(number, sender)
        if not seen:
            time.sleep(_GRACE)
            seen = self._heard(number, sender)
        if number < _QUEUED:
            self._seen = [kept for kept in self._seen if kept[0] != number]
        elif seen:
            self._seen.remove((number, sender or 0))
        return seen

    def dismiss(self) -> int | None:
        """Kill the process; return its pid, for which the caller has to wait. `None`: none runs."""
        pid = self.pid
        self.forget()
        if pid is not None:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return pid

    def end(self) -> None:
        """Kill the process and wait for it."""
        pid = self.dismiss()
        if pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def forget(self) -> None:
        """Close the pipes to a process that is gone."""
        if self.pid is not None:
            self.pid = None
            os.close(self._ask)
            os.close(self._answers)

    def end_of_target(self) -> float | None:
        """Return the monotonic seconds of the target's end, if the witness has seen it (`launch.c`)."""
        lines = self._asked(_ASK_END)
        return float(lines[0]) if lines and b"." in lines[0] else None

    def _heard(self, number: int, sender: int | None) -> bool:
        """Ask the witness; return whether the signal is among those that it received and we have not taken."""
        self._asked(_ASK)
        return (number, sender or 0) in self._seen

    def _asked(self, question: bytes) -> list[bytes]:
        """Return the lines of the witness's answer, and keep the signals among them; none if it is gone."""
        if self.pid is None:
            return []
        try:
            os.write(self._ask, question)
            answer = self._answer()
        except OSError:
            answer = None
        if answer is None:
            self.dismiss()
            return []
        lines = answer.splitlines()
        for line in lines:
            received, _, by = line.partition(b" ")
            if by:
                self._seen.append((int(received), int(by)))
        return lines

    def _answer(self) -> bytes | None:
        """Read the answer up to the end mark; `None` if the mark does not arrive."""
        answer = b""
        waiting = select.poll()
        waiting.register(self._answers, select.POLLIN)
        while not answer.endswith(_END):
            if not waiting.poll(_PATIENCE * 1000):
                return None
            part = os.read(self._answers, 65536)
            if not part:
                return None
            answer += part
        return answer.removesuffix(_END)


def _stand(questions: int, answers: int) -> NoReturn:
    """Run the witness: answer each question with the pending signals, one "number sender" a line.

    The questions end when the monitor ends, in any way. `stand_witness` in `launcher/witness.c` does the same.
    """
    from otel_memwatch.runtime.rename_process import rename_process

    try:
        os.dup2(questions, 0)
        os.dup2(answers, 1)
        for fd in system_calls.open_files():
            if fd > 1:
                with suppress(OSError):
                    os.close(fd)
        # `pkill otel-memwatch` addresses us, not the group. If it also found the witness, we would conclude that the target
        # has the signal.
        rename_process(_NAME)
        while os.read(0, 1):
            lines = []
            while pending := signal.sigpending():
                lines.append(_consume(pending))
            os.write(1, b"".join(lines) + _END)
    finally:
        os._exit(0)


def _consume(pending: set[signal.Signals]) -> bytes:
    if hasattr(signal, "sigtimedwait"):
        info = signal.sigtimedwait(pending, 0)
        return b"%d %d\n" % (info.si_signo, info.si_pid) if info else b""
    return b"%d 0\n" % signal.sigwait(pending)

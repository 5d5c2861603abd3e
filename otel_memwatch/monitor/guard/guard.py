"""Guard of a run: warns, and ends it at a limit, when it is stalled, when the machine runs short, or after a time.

| option | acts on | verdict | how the run ends |
| --- | --- | --- | --- |
| `--limit` | memory charged to the run's cgroup | limit | SIGKILL, by the kernel and by us (`limit`) |
| `--leave` | memory available on the machine | machine | SIGKILL |
| `--stalled` | time without progress for lack of memory (`run.stall_ledger`) | stalled | SIGKILL |
| `--timeout` | time since the start | timeout | SIGTERM, and SIGKILL after `--kill-after` |
| `--kill-after` | a SIGTERM to this process | none: that of its end | the same |
| `--warn` | memory in use, as a share of each scope | none: a warning | it goes on |

The first of them to act gives the verdict. All processes of the run end, also those that were forked twice or have another
session. Memory is probed ten times a second at most, and less often while much of it is left (`memory_scopes`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque

from otel_memwatch.config import KILL_AFTER
from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.monitor.guard.limit import HardLimit
from otel_memwatch.monitor.guard.memory_scopes import CgroupScope, MachineScope, cgroups_around
from otel_memwatch.monitor.guard.run_processes import RunProcesses
from otel_memwatch.monitor.guard.thawer import Thawer
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable
from otel_memwatch.truth.time_left import growth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.model import ChildExit, Ending
    from otel_memwatch.monitor.guard.events import EventWriter
    from otel_memwatch.monitor.guard.memory_scopes import MemoryScope
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.run.stall_ledger import StallLedger, StallMark

TIMEOUT_EXIT_CODE = 124
"""Exit code of a run that ended within its grace period, as that of timeout(1)."""

_KINDS = {"limit": "limit", "cgroup": "limit", "machine": "machine"}
"""Verdict that a warning announces, by scope."""
_STALLED_SHARE, _LATE_SHARE = 0.6, 0.75
"""Shares of the time of `--stalled`, and of its second half, that a stalled run waits."""
_ONSET, _ONSET_SHARE = 0.05, 0.1
"""Part of that time in which the stall begins, and the share of this part that the run waits."""
_EARLY = 0.9
"""Share of that time after which the verdict is due: samples come late, and memory fills by and by."""
_WARN_STALLED = 0.5
"""Share of that time after which a warning is due."""
_CALM = 0.05
"""A share of memory that must become free below a threshold before it warns again."""
_WARNED = 1.0
"""Seconds between two probes after the last warning, until memory is free again."""
_WATCHED = "timeout", "warn", "leave"
"""Settings that need the guard's own thread."""
_ROOM = 2 << 20
_NICE = -10
"""Change of the priority of our threads while the run is guarded."""
_CLOSE, _REGULAR = 0.01, 0.05
"""Least seconds between two probes if memory crosses a level before the next regular one, and between regular ones."""
_SURGE = 8 << 20
"""Bytes between two probes that are growth even if the probes are close: well above what the kernel counts late."""


class Guard:
    """Guard of one run, from `start` to `finish`. Create it before the command starts, which may be faster than an import.

    Args:
        settings: the options in force.
        events: writer of events; `None`: none are requested.
        problem: reports what does not work.

    Attributes:
        limit: the hard limit; `None` without one.
        verdict: the verdict, if the guard ended the run: the fields of its event.
        thawer: helper process if the run may be frozen. The caller ends it.

    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        events: EventWriter | None,
        problem: Callable[[str], None],
    ) -> None:
        self._settings, self._events, self._problem = settings, events, problem
        self._started = 0.0
        self._group: OwnCgroup | None = None
        self._processes = RunProcesses(None, frozenset())
        self.thawer: Thawer | None = None
        self.limit: HardLimit | None = None
        self.verdict: dict[str, Any] | None = None
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._lock = threading.Lock()
        self._ended = False
        """The command has ended, or a verdict was reached: nothing else may decide."""
        self._woken, self._wake = os.pipe()
        """A pipe, because waiting for a `threading.Event` takes twice the CPU time."""
        self._begun, self._done = threading.Event(), threading.Event()
        self._prepared = False
        self._scopes: list[MemoryScope] = []
        self._term_at = float("inf")
        grace = settings["kill_after"]
        self._grace: float = KILL_AFTER if grace is None else grace
        self._terminating: Thread | None = None
        """Thread of the grace period after a SIGTERM to this process."""
        self._stalls: deque[StallMark] = deque()
        self._stall_warned = False

    # -- called by the supervisor's thread

    def prepare(self, *, freezes: bool = False) -> None:
        """Start the threads, with a higher priority, before the command: a fork bomb uses up processors and processes.

        `freezes`: the run's cgroup may be of version 2, whose processes can be frozen. This is the only thread then.
        """
        self._prepared = True
        if freezes and (self._settings["limit"] or self._settings["leave"]):
            with contextlib.suppress(OSError):
                self.thawer = Thawer()
        self._set_priority(self._nice + _NICE)  # also of threads that start later
        if self._settings["limit"] is not None:
            self.limit = HardLimit(self._settings["limit"], self._breached)
            try:
                self.limit.prepare()
            except Unavailable as error:
                self._limit_fails(error)
        if not any(self._settings[name] for name in _WATCHED):
            self._done.set()
            return
        try:
            Thread(self._watch, "otel-memwatch-guard", room=_ROOM).start()
        except Unavailable as error:
            self._done.set()
            self._problem(f"the run is not guarded: {describe(error)}")

    def start(
        self, group: OwnCgroup | None, spare: frozenset[int], started: float, *, path: str, pid: int
    ) -> None:
        """Begin to watch, and write the first event. Raises nothing.

        Args:
            group: the run's cgroup; `None`: none.
            spare: our processes among those of the run.
            started: monotonic seconds of the start of the command.
            path: directory of the run.
            pid: the command.
        """
        self._group, self._started = group, started
        self._processes = RunProcesses(group, spare, self.thawer)
        if not self._prepared:  # the command was started by another program
            self.prepare()
        if self._settings["timeout"] is not None:
            self._term_at = self._started + self._settings["timeout"]
        try:
            self._find_scopes()
        except (OSError, ValueError) as error:
            self._problem(f"memory is not watched: {describe(error)}")
        watched = [{"of": one.of, "bytes": one.bytes} for one in self._scopes]
        if self.limit is not None and not any(one.of == "limit" for one in self._scopes):
            watched.append({"of": "limit", "bytes": self.limit.bytes})
        self._write("start", None, run=os.path.basename(path), path=path, pid=pid, watched=watched)
        if self.limit is not None:
            try:
                self.limit.watch(group, self._processes)
            except OSError as error:
                self._limit_fails(error)
        self._begun.set()

    def _limit_fails(self, error: Exception) -> None:
        self._problem(
            "if the run exceeds its limit, the kernel kills only one process; "
            f"otel-memwatch cannot kill the others: {describe(error)}"
        )

    def take_signal(self, number: int) -> bool:
        """Begin to end the run if the signal to this process is a SIGTERM and `--kill-after` is set, as timeout(1) does.

        Return false if the signal is only to be passed on to the command.
        """
        if number != signal.SIGTERM or self._settings["kill_after"] is None:
            return False
        if self._terminating is None:
            self._terminating = Thread(self._kill_after_grace, "otel-memwatch-kill", room=_ROOM)
            self._terminate()
            try:
                self._terminating.start()
            except Unavailable:
                self._terminating = None
                self._processes.end()
        return True

    def finish(self) -> None:
        """Stop watching after the command's end. If the guard ended the run, kill the processes that are left."""
        if self.limit is not None:
            self.limit.stop()  # the kernel may have killed the command before it reported the breach
        with self._lock:
            self._ended = True
        os.write(self._wake, b".")
        self._done.wait()
        if self._terminating is not None:
            self._terminating.join()
        os.close(self._wake)
        os.close(self._woken)
        self._set_priority(self._nice)  # reports are as urgent as without a guard
        if self.verdict is not None or self._terminating is not None:
            self._processes.end()

    def write_end(self, end: ChildExit | Ending, peak: Mapping[str, Any] | None) -> None:
        """Write the verdict of a run that the guard did not end: finished, or killed by a signal. Later calls do nothing.

        Call it before a process of ours starts that may outlive this one: the reader of the events waits for their end.
        """
        events, self._events = self._events, None
        if events is None:
            return
        if self.verdict is None:
            kind, at = "finished" if end.signal is None else "killed", time.monotonic() - self._started
            events.write("verdict", kind, at, exit_code=end.exit_code, signal=end.signal, peak=peak)
        events.close()

    def _set_priority(self, nice: int) -> None:
        with contextlib.suppress(OSError):  # only root may raise it
            os.setpriority(os.PRIO_PROCESS, 0, nice)

    def exit_code(self, end: ChildExit) -> int | None:
        """Return the exit code of a run that the guard ended; `None`: as the command ended."""
        if self.verdict is None:
            return None
        code: int | None = self._settings["limit_exit_code"]
        if code is None and self.verdict["kind"] == "timeout" and end.signal != signal.SIGKILL:
            return TIMEOUT_EXIT_CODE
        return code

    def reason(self) -> str | None:
        """Return the option by which the guard ended the run; `None`: it did not, or at the limit, which the summary describes."""
        if self.verdict is None or self.verdict["kind"] == "limit":
            return None
        from otel_memwatch.text import duration, size

        settings = self._settings
        return {
            "timeout": f"--timeout {duration(settings['timeout'] or 0)}",
            "stalled": f"--stalled {duration(settings['stalled'] or 0)}: no progress for lack of memory",
            "machine": f"--leave {size(settings['leave'] or 0)}: the machine ran short of memory",
        }[self.verdict["kind"]]

    # -- called by the sampling thread

    def note_stalls(self, ledger: StallLedger) -> None:
        """Note the stalls up to the last reading; end a run that only waits for memory."""
        seconds, marks, mark = self._settings["stalled"], self._stalls, ledger.mark()
        if seconds is None or (marks and mark.time <= marks[-1].time):
            return
        # The stall began, and the next reading comes, up to this much later.
        gap = mark.time - marks[-1].time if marks else 0.0
        marks.append(mark)
        while len(marks) > 2 and mark.time - marks[1].time >= seconds:
            marks.popleft()
        lost = self._lost(max(seconds * _EARLY - gap, seconds / 2), ledger)
        if lost is None and not self._stall_warned:
            lost = self._lost(seconds * _WARN_STALLED, ledger)
        if lost is None:
            return
        facts = {"stalled_seconds": round(lost, 3), "limit_seconds": seconds}
        if not self._stall_warned:  # a warning comes first, even if readings are late
            self._stall_warned = True
            self._write("warning", "stalled", largest=self._processes.largest(), **facts)
        elif self._decide("stalled", largest=self._processes.largest(), **facts):
            self._processes.end()

    def _lost(self, seconds: float, ledger: StallLedger) -> float | None:
        """Return the seconds lost in the last `seconds`, if the run was stalled in all that time.

        A run is stalled if it waits most of the time, all the more in the second half, and both at the beginning and now. The
        share rises slowly after memory is full: pages that are read for the first time are no shortage.
        """
        last = self._stalls[-1]
        if last.time - self._stalls[0].time < seconds:
            return None
        begin, onset, middle = (
            next(mark for mark in reversed(self._stalls) if mark.time <= last.time - before)
            for before in (seconds, seconds * (1 - _ONSET), seconds / 2)
        )
        if onset is begin:  # readings are less dense
            onset = self._stalls[self._stalls.index(begin) + 1]
        parts = (
            (begin, onset, _ONSET_SHARE),
            (middle, last, _LATE_SHARE),
            (self._stalls[-2], last, _STALLED_SHARE),
        )
        for first, until, share in parts:
            if ledger.waited(first, until) < share * (until.time - first.time):
                return None
        lost = ledger.waited(begin, last)
        return lost if lost >= _STALLED_SHARE * (last.time - begin.time) else None

    # -- the guard's thread

    def _watch(self) -> None:
        self._begun.wait()
        try:
            while not self._ended:
                now = time.monotonic()
                due = self._check_time(now)
                for scope in list(self._scopes):
                    if now >= scope.due:
                        self._check(scope, now)
                    due = min(due, scope.due)
                if not self._ended:
                    readable([self._woken], max(0.0, due - time.monotonic()))
            if self.verdict is not None and self.verdict["kind"] == "timeout":
                self._kill_after_grace()
        finally:
            for scope in self._scopes:
                scope.close()
            self._done.set()

    def _terminate(self) -> None:
        self._processes.signal(signal.SIGTERM)
        self._processes.signal(signal.SIGCONT)

    def _kill_after_grace(self) -> None:
        """Kill every process unless the command ends within the grace period."""
        if not readable([self._woken], self._grace):
            self._processes.end()

    def _check_time(self, now: float) -> float:
        """Ask the run to end if its time is over; return when to check again."""
        if now < self._term_at:
            return self._term_at
        if self._decide(
            "timeout", limit_seconds=self._settings["timeout"], largest=self._processes.largest()
        ):
            self._terminate()
        return float("inf")

    def _check(self, scope: MemoryScope, now: float) -> None:
        """Probe a scope: warn, or end the run for `--leave`. Sets when to probe again."""
        room = self._settings["leave"] if scope.of == "machine" else None
        leave = None if room is None else scope.bytes - room
        level = scope.bytes if leave is None else leave
        for share in scope.armed:
            level = min(level, int(scope.bytes * share))
        try:
            used = scope.probe(now, level)
        except (OSError, ValueError):  # the cgroup is gone
            self._scopes.remove(scope)
            scope.close()
            scope.due = float("inf")
            return
        if used < level and all(scope.armed.values()):  # most probes
            self._hurry(scope, level, now)
            return
        self._warn(scope, used, now)
        if leave is not None and used > leave:
            self._processes.freeze()  # reading their sizes takes time, in which they would grow
            try:
                if self._decide("machine", **self._facts(scope), largest=self._processes.largest()):
                    self._processes.end()
            finally:
                self._processes.freeze(frozen=False)
        elif leave is not None:
            self._hurry(scope, leave, now)
        elif not any(scope.armed.values()):
            scope.due = max(scope.due, now + _WARNED)

    def _warn(self, scope: MemoryScope, used: int, now: float) -> None:
        """Write a warning if memory has crossed an armed threshold; arm it again once memory is free again."""
        if any(armed and used >= scope.bytes * share for share, armed in scope.armed.items()):
            self._write("warning", _KINDS[scope.of], **self._facts(scope), largest=self._processes.largest())
        # Disarm afterwards: a breach meanwhile warns as well, before this warning could be written.
        for share in scope.armed:
            level = scope.bytes * share
            if used >= level:
                scope.armed[share] = False
            elif used < level - scope.bytes * _CALM:
                scope.armed[share] = True
            if used < level and scope.armed[share]:
                self._hurry(scope, int(level), now)

    def _hurry(self, scope: MemoryScope, level: int, now: float) -> None:
        """Probe when a growing scope crosses a level, if that is before the next regular probe.

        Small growth is taken from regular probes only, so at most every second probe comes early.
        """
        if len(scope.samples) < 2:
            return
        (before, first), (after, last) = scope.samples[-2], scope.samples[-1]
        if last - first >= (1 if after - before >= _REGULAR else _SURGE):
            left = (level - last) * (after - before) / (last - first)
            scope.due = min(scope.due, now + max(_CLOSE, left))

    def _facts(self, scope: MemoryScope) -> dict[str, Any]:
        """Return who, how much, and how long: the fields of an event about memory."""
        samples = list(scope.samples)  # another thread may add one
        used, found = samples[-1][1], growth(samples, scope.bytes)
        left = None if found.low is None else {"low": _rounded(found.low), "high": _rounded(found.high)}
        return {
            "of": scope.of,
            "bytes": used,
            "limit": scope.bytes,
            "growth": None if found.rate is None else round(found.rate),
            "seconds_left": left,
        }

    def _find_scopes(self) -> None:
        """Find the scopes that the options ask for, and arm their thresholds."""
        warn, leave, limit = (self._settings[name] for name in ("warn", "leave", "limit"))
        if not warn and leave is None and limit is None:
            return
        from otel_memwatch.text import size

        machine = MachineScope()
        for name, value in (("--limit", limit), ("--leave", leave)):
            if value is not None and value >= machine.bytes:
                self._problem(f"{name} {size(value)} has no effect: the machine has {size(machine.bytes)}")
        if leave is not None and leave >= machine.bytes:
            leave = None
            self._settings = {**self._settings, "leave": None}
        if warn or leave is not None:
            self._scopes.append(machine)
        else:
            machine.close()
        if warn:
            if limit is not None and self._group is not None:
                path = self._group.path
                self._scopes.append(CgroupScope("limit", path, self._group.version, limit))
            self._scopes += cgroups_around(machine.bytes)
        for scope in self._scopes:
            scope.armed = dict.fromkeys(warn, True)

    def _breached(self, largest: list[dict[str, Any]]) -> None:
        """Note that the kernel reported a breach of the limit."""
        size: int = self._settings["limit"]
        facts: dict[str, Any] = {
            "of": "limit",
            "bytes": size,
            "limit": size,
            "growth": None,
            "seconds_left": None,
        }
        scope = next((one for one in self._scopes if one.of == "limit"), None)
        if scope is not None and scope.samples:
            facts |= {name: value for name, value in self._facts(scope).items() if name == "growth"}
        if scope is not None and any(scope.armed.values()):  # it crossed its thresholds between two probes
            self._write("warning", "limit", **facts, largest=largest)
        self._decide("limit", **facts, largest=largest)

    def _decide(self, kind: str, **facts: Any) -> bool:
        """Note the verdict, unless the command has ended or there is one; return whether it is the verdict."""
        with self._lock:
            if self._ended:
                return False
            self._ended = True
            at = time.monotonic() - self._started
            self.verdict = {"kind": kind, "at": round(at, 3), **facts}
            if self._events is not None:
                self._events.write("verdict", kind, at, **facts)
        return True

    def _write(self, event: str, kind: str | None, **facts: Any) -> None:
        """Write an event before the verdict, which is the last one."""
        with self._lock:
            if self._events is not None and not self._ended:
                self._events.write(event, kind, time.monotonic() - self._started, **facts)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)

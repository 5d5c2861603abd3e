"""Last reading of a cgroup that is the target, by separate processes.

A service manager removes the cgroup of a unit or a rootless container as soon as its last process has ended. The kernel
wakes those who poll cgroup.events before those who watch the file, as a service manager does. That lead is short. In the
monitor, a woken thread may wait for another one: it gives up the interpreter's lock at every system call. A forked process
with one thread does not. The high-water mark is read first: it alone is an upper bound.

There are two such processes on different processors, as one may be busy. Against a program that removes the cgroup at once, 119 of
120 readings of two were in time, and 111 of 120 of one (load 22, two processors).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import struct
import time

from otel_memwatch.runtime.system_calls import call
from otel_memwatch.runtime.typed import NoReturn
from otel_memwatch.runtime.wait_readable import readable

FILES = ("memory.peak", "memory.stat", "memory.current", "memory.events")
"""Files of every sample, in the order of their reading. The last ones are missing if the cgroup is removed meanwhile."""
_MOST_BYTES = 16384
"""Most bytes of one file; a message has at most eight times as many."""
_PRIORITY = 1
"""Real-time priority of the process, if the user may set it.

The process sleeps until it has to be faster than the service manager. On a busy machine the kernel lets a process wait that
shares its cgroup with busy ones, whatever its nice value. With a load of 19 on two processors, against a program that removes
the cgroup at once, 60 of 60 readings were in time, and with a nice value of -20 47 of 60.
"""
_SLICE_NS = 100_000
"""Time slice of the process if the user may not set that priority, the shortest one that the kernel takes.

Since Linux 6.12, a process that wakes up may preempt one with a longer slice. Older kernels ignore it. With a load of 17 on two
processors, against a program that removes the cgroup at once, 24 of 30 readings were in time, and without it 14 of 30.
"""
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call on each machine. The C library has no function for it before glibc 2.41."""
_FIELD = b"\0"
"""Separator in a message: the monotonic time before the reading, then contents."""


class LastReading:
    """Forked processes that read a cgroup (version 2) whenever its last process has ended.

    Raises `OSError` if the cgroup is gone or a file cannot be opened. Call it before the first thread starts.

    Attributes:
        pids: PIDs of the processes, which are not part of the run.
        fd: descriptor that becomes readable when the cgroup has no process, or has one again.
        contents: contents of the files by name after the last process; empty: unknown, or there is a process.
        is_over: true if the processes have ended.

    """

    def __init__(self, path: str) -> None:
        self.contents: dict[str, bytes] = {}
        self.is_over = False
        self._read = -math.inf
        """Monotonic seconds of the contents; no older ones replace them."""
        self._path, self._inode = path, os.stat(path).st_ino
        self.pids: list[int] = []
        self._results, results = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.fd = self._results.fileno()
        processors = sorted(os.sched_getaffinity(0))
        opened: list[int] = []
        try:
            opened.extend(os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in FILES)
            for processor in {processors[0], processors[-1]}:
                # Reading the file ends the event, so each process needs another one.
                events = os.open(f"{path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
                opened.append(events)
                pid = os.fork()
                if not pid:
                    self._results.close()  # its end is ours
                    _serve(processor, events, opened[: len(FILES)], results)
                self.pids.append(pid)
        except OSError:
            self.close()
            raise
        finally:
            results.close()
            for descriptor in opened:
                os.close(descriptor)

    def take(self, seconds: float) -> None:
        """Read the messages so far. Wait up to so many seconds for a whole one about the last process."""
        while readable([self.fd], 0 if len(self.contents) == len(FILES) else seconds):
            message = self._results.recv(8 * _MOST_BYTES)
            if not message:
                self.is_over = True
                return
            read, *fields = message.split(_FIELD)
            self._use(float(read), dict(zip(FILES, fields, strict=False)))

    def _use(self, read: float, found: dict[str, bytes]) -> None:
        """Replace the contents by later ones, or by those of more files with the same high-water mark."""
        mark = FILES[0]
        if mark in found and found[mark] == self.contents.get(mark):
            later = len(found) >= len(self.contents)
        else:
            later = read > self._read
        if later:
            self.contents, self._read = found, max(self._read, read)

    def discard(self) -> None:
        """Discard all contents until now, as there is a process."""
        self.contents, self._read = {}, time.monotonic()

    def is_there(self) -> bool:
        """Return whether the cgroup exists. Another one at its path, as of a restarted unit, does not count."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """End the processes."""
        self._results.close()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)  # it may be stopped
                os.waitpid(pid, 0)


def _serve(processor: int, events: int, files: list[int], results: socket.socket) -> NoReturn:
    """Send the contents of the files when the last process has ended, and no content when there is one again."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the monitor's end is ours
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {processor})
        _run_first()
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        poll.register(results, 0)
        while not any(descriptor == results.fileno() for descriptor, _ in poll.poll()):
            now, found = time.monotonic(), [os.pread(files[0], _MOST_BYTES, 0)]
            if b"populated 0" in os.pread(events, _MOST_BYTES, 0):
                with contextlib.suppress(OSError):
                    found.extend(os.pread(file, _MOST_BYTES, 0) for file in files[1:])
            else:
                found = []
            results.send(_FIELD.join([b"%r" % now, *found]))
    finally:
        os._exit(0)


def _run_first() -> None:
    """Let the kernel run this process before others when it wakes up, as far as the user may ask for this."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError:
        number = _SCHED_SETATTR.get(os.uname().machine)
        if number is not None:
            # struct sched_attr: size, policy, flags, nice value, priority, runtime, deadline, period
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
            call("syscall", number, 0, attributes, 0)

"""Threads of this package, their errors if memory is short, and the address space that is left.

Under a limited address space (`ulimit -v`) a thread may lack the memory to start, to run, or even to handle the error.
This module contains all countermeasures.
"""

from __future__ import annotations

import _thread
import os
import resource
import sys

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.light import Lock, deque, suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_LEAST = 1 << 20
"""Bytes beyond its stack that a thread needs before it can report its start. The actual need is about 100 KiB."""

_STACK = 8 << 20
"""Bytes of a stack if the system reports no size."""

_MOST_KEPT = 8
"""Maximum number of kept errors. One of each kind is reported, and an endless failing loop must not fill the memory."""


_running: set[Thread] = set()
"""Threads that have started and not ended."""

recent_pids: deque[int] = deque(maxlen=256)
"""The kernel's numbers of the last threads, which share the numbers of processes."""


class Thread:
    """A daemon thread that starts only if enough address space is left for its work.

    In a limited address space, a thread may get a stack and nothing more. It dies before it can report its start, and
    the standard library's `start` waits for that report for ever. A thread that runs out of memory later may end the
    process, because the interpreter does not survive this everywhere.

    Args:
        target: function to call.
        name: name of the thread.
        args: arguments of the function.
        room: bytes of address space that the function needs, without the thread's stack.

    Attributes:
        ident: number of the thread; `None`: it has not started.

    """

    def __init__(
        self, target: Callable[..., object], name: str, args: Iterable[object] = (), *, room: int = _LEAST
    ) -> None:
        self._target, self.name, self._arguments, self._room = target, name, args, room
        self.ident: int | None = None
        self._runs = Lock()

    def start(self) -> None:
        """Start the thread. Raises `Unavailable` if it cannot start."""
        if limited():
            # `threading.stack_size` may change the actual size.
            stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
            need((stack if stack > 0 else _STACK) + self._room)
        self._runs.acquire()
        _running.add(self)
        try:
            self.ident = _thread.start_new_thread(self._run, ())
        except RuntimeError:
            self._end()
            raise Unavailable(
                "The system allows no more threads.", "see ulimit -u, and pids.max of the cgroup"
            ) from None

    def _run(self) -> None:
        recent_pids.append(_thread.get_native_id())
        try:
            self._target(*self._arguments)
        finally:
            self._end()

    def _end(self) -> None:
        _running.discard(self)
        self._runs.release()

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._runs.locked()

    def join(self, timeout: float = -1) -> None:
        """Wait until the thread has ended, or `timeout` seconds have passed."""
        if self._runs.acquire(timeout=timeout):
            self._runs.release()


def other_threads() -> bool:
    """Return whether other threads run: of this package, or of a library."""
    library: Any = sys.modules.get("threading")
    return bool(_running) or (library is not None and library.active_count() > 1)


class Flag:
    """A `threading.Event` for one waiting thread: a wait is one system call and makes no objects.

    At ten waits a second with cold caches, this saves a tenth of the cost of an idle monitor.
    """

    def __init__(self) -> None:
        self._set = False
        self._lock = Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it for good, and end all waits."""
        self._set = True
        with suppress(RuntimeError):  # already set
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set (`True`) or `timeout` seconds have passed (`False`)."""
        if not self._set and self._lock.acquire(timeout=timeout):
            with suppress(RuntimeError):  # set again at this moment
                self._lock.release()
        return self._set


class Alarm:
    """A descriptor that another thread makes readable, for a thread that waits outside the interpreter."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if hasattr(os, "eventfd") else -1
        """-1: the system has none."""

    def ring(self) -> None:
        """Make it readable until `silence`."""
        if self.descriptor >= 0:
            os.eventfd_write(self.descriptor, 1)

    def silence(self) -> None:
        """Make it unreadable."""
        if self.descriptor >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ThreadErrors:
    """Collection of errors that ended a thread.

    The interpreter would print them as tracebacks to the target's terminal. An `except` clause cannot catch all of
    them, because handling an error takes memory too.
    """

    def __init__(self) -> None:
        self._kept: deque[Any] = deque(maxlen=_MOST_KEPT)

    def keep(self) -> None:
        """Keep errors from now on, instead of printing them."""
        # A method written in C, because calling a Python function needs memory. `threading` takes its hook from `_thread`.
        sys.unraisablehook = _thread._excepthook = self._kept.append  # noqa: SLF001
        library: Any = sys.modules.get("threading")
        if library is not None:
            library.excepthook = self._kept.append

    def sentences(self) -> list[str]:
        """Return a sentence for each kind of error that ended a thread. Errors of finalizers are ignored."""
        # `threading`'s hook reports an attribute, the interpreter's reports words.
        of_threads = [
            kept for kept in self._kept if hasattr(kept, "thread") or "in thread" in (kept.err_msg or "")
        ]
        kinds = dict.fromkeys(kept.exc_type.__name__ for kept in of_threads)
        return [f"a thread of the monitor ended early: {kind}" for kind in kinds]


_M_ARENA_MAX = -8
"""mallopt(3)."""


def limited() -> bool:
    """Return whether the address space has a limit (`ulimit -v`)."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def need(room: int) -> None:
    """Raise `Unavailable` if the limit leaves less than `room` bytes. Costs a microsecond without a limit."""
    if room <= 0 or not limited():
        return
    import mmap

    try:
        mmap.mmap(-1, room).close()
    except (OSError, MemoryError):
        raise Unavailable(f"ulimit -v leaves less than {room >> 20} MiB of address space.") from None


def keep_to_one_heap() -> None:
    """Keep glibc from reserving a heap of 64 MiB of address space for each thread. Such a heap grows by single pages.

    Only for processes of this package: it would slow down a program with busy threads. Another C library has one heap, or
    other ones.
    """
    system_calls.call("mallopt", _M_ARENA_MAX, 1)

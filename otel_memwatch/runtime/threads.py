"""The threads of this package, and what becomes of errors in them where memory is short.

Under a limited address space (`ulimit -v`) a thread may lack the memory to start, to run, or even to handle that it lacks
memory. All that is done about it stands here and in `address_space`.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections import deque

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.address_space import limited, need
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LEAST = 1 << 20
"""Bytes beyond its stack that a thread needs before it can say that it runs: some 100 KiB."""

_STACK = 8 << 20
"""Bytes of a stack where the system names no size."""

_MOST_KEPT = 8
"""Errors that are kept: one of each kind is reported, and a loop that fails for ever must not fill the memory."""


class Thread(threading.Thread):
    """A daemon thread that is started only where there is room for what it does.

    A thread that gets its stack of a limited address space and nothing more dies before it can say that it runs, and the
    standard library's `start` waits for its word for ever; one that runs out of memory in the middle may take the process
    with it, for the interpreter itself does not survive that everywhere.

    Args:
        target: what it calls.
        name: its name.
        args: what it calls it with.
        room: bytes of address space that this takes, the thread's stack not counted.

    """

    def __init__(
        self, target: Callable[..., object], name: str, args: Iterable[object] = (), *, room: int = _LEAST
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._room = room

    def start(self) -> None:
        """Starts it. Raises `Unavailable` where it cannot be started."""
        if limited():
            need(_stack() + self._room)
        try:
            super().start()
        except RuntimeError:
            raise Unavailable(
                "The system allows no more threads.", "see ulimit -u, and pids.max of the control group"
            ) from None


def _stack() -> int:
    """Bytes of address space that a thread's stack takes, as far as can be asked: `threading.stack_size` sets it."""
    size = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return size if size > 0 else _STACK


class ThreadErrors:
    """Keeps the errors that end a thread, which the interpreter would print as tracebacks into the target's terminal.

    No `except` of ours gets to see them: handling an error takes memory too.
    """

    def __init__(self) -> None:
        self._kept: deque[Any] = deque(maxlen=_MOST_KEPT)

    def keep(self) -> None:
        """From now on this process prints none of them."""
        # A method written in C, since a Python function needs memory to be called.
        sys.unraisablehook = threading.excepthook = self._kept.append

    def sentences(self) -> list[str]:
        """A sentence for each kind of error that has ended a thread; what a finalizer raised changes nothing."""
        kinds = dict.fromkeys(kept.exc_type.__name__ for kept in self._kept if _came_from_thread(kept))
        return [f"a thread of the monitor's ended early: {kind}" for kind in kinds]


def _came_from_thread(kept: Any) -> bool:
    """Whether the error ended a thread: `threading`'s hook has an attribute for it, the interpreter's says so in words."""
    return hasattr(kept, "thread") or "in thread" in (kept.err_msg or "")

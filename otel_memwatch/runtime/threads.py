"""The threads of this package."""

from __future__ import annotations

import resource
import threading

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.address_space import limited, need
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LEAST = 1 << 20
"""Bytes beyond its stack that a thread needs before it can say that it runs: some 100 KiB."""

_STACK = 8 << 20
"""Bytes of a stack where the system names no size."""


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

"""Errors that no code of ours gets to see: a thread may lack the memory even to handle that it lacks memory."""

from __future__ import annotations

import sys
import threading
from collections import deque

from otel_memwatch.runtime.typed import Any

_MOST = 8


class Unseen:
    """Keeps such errors, which the interpreter would print as tracebacks into the target's terminal."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque(maxlen=_MOST)

    def keep(self) -> None:
        """From now on nothing of the kind is printed in this process."""
        # A method written in C: a Python function needs memory to be called.
        sys.unraisablehook = threading.excepthook = self._kept.append

    def sentences(self) -> list[str]:
        """A sentence for each kind of error that has left a thread; what a finalizer raised changes nothing."""
        kinds = dict.fromkeys(kept.exc_type.__name__ for kept in self._kept if _of_thread(kept))
        return [f"a thread of the monitor's ended early: {kind}" for kind in kinds]


def _of_thread(kept: Any) -> bool:
    """Whether the error came out of a thread: `threading`'s hook names it, the interpreter's says so in words."""
    return hasattr(kept, "thread") or "in thread" in (kept.err_msg or "")

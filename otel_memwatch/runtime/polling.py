"""Reads what may hang in a thread of its own, so that a stuck driver delays nobody.

A call into a driver can block for seconds, or for ever, and cannot be interrupted. The sampler must never make one.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Value = float | int | None

_Result = TypeVar("_Result")

PATIENCE = 3.0
"""Seconds, and periods, after which a call that has not returned counts as hanging."""

LONGEST_REST = 60.0
"""Seconds beyond which a slow read is not stretched: it is still worth a value a minute."""

_EARLY = 0.9
"""Part of a period after which something counts as due: its thread never wakes at the exact moment."""


class Pace:
    """When something slow is due again: every `period` seconds, or as seldom as its cost demands.

    Args:
        period: seconds between two readings that cost nothing.
        share: part of the wall time that the readings may take.

    """

    def __init__(self, period: float, share: float) -> None:
        self.period = period
        self._share = share
        self._due = 0.0

    def due(self, now: float) -> bool:
        """Whether it may be read at `now` (monotonic seconds)."""
        return now >= self._due

    def spent(self, now: float, seconds: float) -> None:
        """Notes that a reading begun at `now` took `seconds`."""
        self._due = now + max(self.period * _EARLY, min(seconds / self._share, LONGEST_REST))


class Poller:
    """Calls `poll` about every `period` seconds in a daemon thread; whoever asks gets the values once.

    Args:
        name: who is asked, for messages: "the NVIDIA driver".
        poll: one value for each column; what it raises is raised again by `take`.
        period: seconds between two calls.
        hint: what a person may do when it hangs.

    """

    def __init__(self, name: str, poll: Callable[[], Sequence[Value]], period: float, hint: str) -> None:
        self._name, self._poll, self._period, self._hint = name, poll, period, hint
        self._stop = threading.Event()
        self._values: Sequence[Value] | None = None
        self._error: Exception | None = None
        self._asked: float | None = None
        self._thread = Thread(self._run, f"otel-memwatch {name}")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Ends the thread, waiting no longer than `seconds`: one that hangs is left to the end of the process."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def take(self, now: float) -> Sequence[Value] | None:
        """Values that came since the last call; `None`: none did.

        Raises `Unavailable` while the thread waits for an answer longer than that is normal, and whatever
        the last call raised.
        """
        asked = self._asked
        if asked is not None and now - asked > PATIENCE * max(1.0, self._period):
            raise Unavailable(f"{self._name} has not answered for {now - asked:.0f} s", self._hint)
        error = self._error
        if error is not None:
            raise error
        values, self._values = self._values, None
        return values

    def _run(self) -> None:
        while True:
            began = self._asked = time.monotonic()
            try:
                self._values, self._error = self._poll(), None
            except Exception as error:  # noqa: BLE001 - told to whoever takes the values
                self._values, self._error = None, error
            self._asked = None
            if self._stop.wait(max(0.0, self._period - (time.monotonic() - began))):
                return


class _Answer(Generic[_Result]):
    """What a call in another thread came to."""

    def __init__(self, call: Callable[[], _Result]) -> None:
        self._call = call
        self.result: list[_Result] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised again in the asking thread
            self.error = error


def answered(call: Callable[[], _Result], seconds: float, name: str, hint: str) -> _Result:
    """The result of `call`, made in a thread of its own.

    Raises `Unavailable` when it does not return within `seconds` (the thread is left behind), else what it raises.
    """
    answer = _Answer(call)
    thread = Thread(answer.run, f"otel-memwatch ask {name}")
    thread.start()
    thread.join(seconds)
    if answer.error is not None:
        raise answer.error
    if not answer.result:
        raise Unavailable(f"{name} did not answer within {seconds:g} s", hint)
    return answer.result[0]

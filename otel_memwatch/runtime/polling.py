"""When something is due that is not done every time, and how to ask what may hang without hanging oneself.

A call into a driver can block for seconds, or for ever, and cannot be interrupted. The sampler must never make one: `Poller` and
`answered` make them in a thread of their own, so that a stuck driver delays nobody.
"""

from __future__ import annotations

import threading
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Value = float | int | None
    Result = TypeVar("Result")

PATIENCE = 3.0
"""Seconds, and periods, after which a call that has not returned counts as hanging."""

LONGEST_REST = 60.0
"""Seconds beyond which a slow read is not stretched: it is still worth a value a minute."""


class Pace:
    """When something that is not done every time is due: every `period` seconds, or as seldom as its cost demands.

    Args:
        period: seconds between two readings that cost nothing.
        early: seconds by which a reading may come before its time. Whoever asks in rounds never asks at the exact
            moment, and a reading that was put off for a millisecond would be a whole round late.
        share: part of the wall time that the readings may take; `None`: as much as they want.

    """

    def __init__(self, period: float, *, early: float, share: float | None = None) -> None:
        self.period = period
        self._wait = period - early
        self._share = share
        self._next: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is to be read at `now` (monotonic seconds), which then counts as done; true the first time."""
        if self._next is not None and now < self._next:
            return False
        self._next = now + self._wait
        return True

    def spent(self, now: float, seconds: float) -> None:
        """Notes that a reading begun at `now` took `seconds`: the next one waits until its share has room for it."""
        rest = 0.0 if self._share is None else min(seconds / self._share, LONGEST_REST)
        self._next = now + max(self._wait, rest)


class Poller:
    """Calls `poll` about every `period` seconds in a daemon thread; whoever asks gets the values once.

    Args:
        name: who is asked, for messages: "the NVIDIA driver".
        poll: one value for each column; what it raises is raised again by `new_values`.
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

    def new_values(self, now: float) -> Sequence[Value] | None:
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
            except Exception as error:  # noqa: BLE001 - raised again for whoever asks for the values
                self._values, self._error = None, error
            self._asked = None
            if self._stop.wait(max(0.0, self._period - (time.monotonic() - began))):
                return


def answered(call: Callable[[], Result], seconds: float, name: str, hint: str) -> Result:
    """The result of `call`, made in a thread of its own.

    Raises `Unavailable` when it does not return within `seconds` (the thread is left behind), else what it raises.
    """
    results: list[Result] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised again in the asking thread
            errors.append(error)

    thread = Thread(ask, f"otel-memwatch ask {name}")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise Unavailable(f"{name} did not answer within {seconds:g} s", hint)
    return results[0]

"""Schedule of readings that are not part of every sample, and calls that may hang.

A call into a driver can block for seconds or for ever, and cannot be interrupted. The sampler must never make such a
call. `Poller` and `answered` make it in a separate thread, so a hanging driver causes no delay.
"""

from __future__ import annotations

import math
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.light import Lock
from otel_memwatch.runtime.threads import Flag, Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Value = float | int | None
    Result = TypeVar("Result")

PATIENCE = 3.0
"""Seconds, and also periods, after which an unfinished call counts as hanging."""

LONGEST_REST = 60.0
"""Longest pause after a slow reading, in seconds. Even a slow source is worth a value per minute."""


class Pace:
    """Schedule of readings: every `period` seconds, or less often if they are slow.

    Args:
        period: seconds between two fast readings.
        early: seconds by which a reading may come early. Callers ask once per round, never at the exact time, and a
            reading postponed by a millisecond would be a whole round late.
        share: share of wall time that the readings may take; `None` means no limit.

    """

    def __init__(self, period: float, *, early: float, share: float | None = None) -> None:
        self.period = period
        self._wait = period - early
        self._share = share
        self.next = -math.inf
        """Monotonic seconds from which on the next reading is due."""

    def due(self, now: float) -> bool:
        """Return whether a reading is due at `now` (monotonic seconds), and count it as done. The first one is due."""
        if now < self.next:
            return False
        self.next = now + self._wait
        return True

    def spent(self, now: float, seconds: float) -> None:
        """Note that a reading at `now` took `seconds`, and postpone the next one according to the share."""
        rest = 0.0 if self._share is None else min(seconds / self._share, LONGEST_REST)
        self.next = now + max(self._wait, rest)


class Poller:
    """Daemon thread that calls `poll` about every `period` seconds. Each value is returned once, the latest if there are several.

    Args:
        name: name of the source in messages, such as "the NVIDIA driver".
        poll: function that returns one value for each column; `new_values` re-raises its errors.
        period: seconds between two calls.
        hint: advice for users if it hangs.

    """

    def __init__(self, name: str, poll: Callable[[], Sequence[Value]], period: float, hint: str) -> None:
        self._name, self._poll, self._period, self._hint = name, poll, period, hint
        self._stop = Flag()
        self._lock = Lock()
        self._values: Sequence[Value] | None = None
        self._error: Exception | None = None
        self._asked: float | None = None
        self.cpu_seconds = 0.0
        """CPU seconds of the thread so far."""
        self._thread = Thread(self._run, f"otel-memwatch {name}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, seconds: float = 1.0) -> bool:
        """Stop the thread and return whether it has ended. Waits at most `seconds`; a hanging one ends with the process."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def new_values(self, now: float) -> Sequence[Value] | None:
        """Return values that arrived since the last call, or `None`.

        Raises `Unavailable` while the thread waits unusually long for an answer, and the error of the last call of `poll`.
        """
        asked = self._asked
        if asked is not None and now - asked > PATIENCE * max(1.0, self._period):
            raise Unavailable(f"{self._name} has not answered for {now - asked:.0f} s", self._hint)
        error = self._error
        if error is not None:
            raise error
        with self._lock:
            values, self._values = self._values, None
        return values

    def _publish(self, values: Sequence[Value]) -> None:
        with self._lock:
            before = self._values
            if before is not None:
                values = tuple(old if new is None else new for old, new in zip(before, values, strict=True))
            self._values = values

    def _run(self) -> None:
        while True:
            began = self._asked = time.monotonic()
            try:
                self._publish(self._poll())
                self._error = None
            except Exception as error:  # noqa: BLE001 - raised again by `new_values`
                self._values, self._error = None, error
            self._asked = None
            self.cpu_seconds = time.thread_time()
            if self._stop.wait(max(0.0, self._period - (time.monotonic() - began))):
                return


def answered(call: Callable[[], Result], seconds: float, name: str, hint: str) -> Result:
    """Return the result of `call`, made in a separate thread.

    Raises `Unavailable` if it does not return within `seconds`, and otherwise its error. A hanging thread is abandoned.
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

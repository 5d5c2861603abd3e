"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading


class FakeClock:
    """Time passes only in `wait` and `sleep`; every wait is noted."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self.cpu_now = 0.0
        self.ends_after: int | None = None
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def cpu(self) -> float:
        return self.cpu_now

    def sleep(self, seconds: float, cpu: float = 0.0) -> None:
        self.now += seconds
        self.cpu_now += cpu

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return stop.is_set() or (self.ends_after is not None and len(self.waits) >= self.ends_after)

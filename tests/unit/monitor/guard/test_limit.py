"""Hard limit: which reports of the kernel are a breach."""

from __future__ import annotations

import os
from typing import Any

import pytest

from otel_memwatch.monitor.guard import limit
from otel_memwatch.monitor.guard.limit import HardLimit


class Group:
    """A cgroup with given events and a given number of kills; `None`: it is gone."""

    def __init__(self, counts: dict[str, int], kills: int | None) -> None:
        self._counts, self._kills = counts, kills

    def read_events(self, descriptor: int) -> dict[str, int]:
        return self._counts

    def kills_at_limit(self) -> int:
        if self._kills is None:
            raise FileNotFoundError
        return self._kills


class Processes:
    frozen = False

    def largest(self) -> list[dict[str, Any]]:
        return [{"pid": 1, "command": "hog", "bytes": 7}]

    def freeze(self) -> None:
        self.frozen = True

    def end(self) -> None:
        self.frozen = False


@pytest.mark.parametrize(
    ("counts", "kills", "breached"),
    [
        ({}, 1, True),  # version 1
        ({}, 0, False),
        ({"max": 9, "oom": 0}, 1, False),  # reclaim; the kill is that of another limit
        ({"oom": 1}, 0, False),
        ({"oom": 1, "oom_kill": 1}, 1, True),
        ({"oom": 1, "oom_kill": 1}, None, True),  # a service manager has removed the empty cgroup
        ({"oom": 1, "oom_kill": 0}, None, True),
        ({"max": 9, "oom": 0}, None, False),
        ({}, None, False),
    ],
)
def test_breaches(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], kills: int | None, breached: bool
) -> None:
    monkeypatch.setattr(limit, "_CONFIRM_SECONDS", 0.02)
    found: list[object] = []
    hard: Any = HardLimit(1 << 20, found.append)
    hard._processes = Processes()
    hard._check_event(Group(counts, kills), -1)
    os.close(hard._wake)
    os.close(hard._waker)
    assert (hard.breached is not None, found) == (breached, [Processes().largest()] if breached else [])


def test_a_failing_report_leaves_no_process_frozen() -> None:
    def fail(_: object) -> None:
        raise MemoryError

    hard: Any = HardLimit(1 << 20, fail)
    hard._processes = Processes()
    with pytest.raises(MemoryError):
        hard._check_event(Group({"oom": 1, "oom_kill": 1}, 1), -1)
    os.close(hard._wake)
    os.close(hard._waker)
    assert not hard._processes.frozen

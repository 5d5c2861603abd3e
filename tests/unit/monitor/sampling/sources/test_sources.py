"""Opening of drivers: fast ones join at once, slow ones later, silent ones are noted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling import sources
from otel_memwatch.monitor.sampling.sources import Context, Opening, SilentDriver
from otel_memwatch.runtime.threads import Flag

GUARD = 30.0


class Source:
    """A source that a driver has opened."""

    def __init__(self, name: str) -> None:
        self.name = name


class Drivers:
    """Drivers of which NVIDIA's answers when `release` is set, and the other one at once."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.limits: list[float | None] = []

    def open_sources(self, context: Context, names: list[str]) -> tuple[list[Source], dict[str, Unavailable]]:
        self.limits.append(context.opening_limit)
        if names == ["gpu_nvidia"]:
            self.release.wait(GUARD)
            return [Source(names[0])], {}
        return [], {name: Unavailable("No GPU") for name in names}


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drivers]:
    made = Drivers()
    monkeypatch.setattr(sources, "open_sources", made.open_sources)
    monkeypatch.setattr(sources, "PATIENCE", 0.05)
    yield made
    made.release.set()


def started() -> tuple[Opening, Flag]:
    done = Flag()
    made = Opening(Context(1, 0.1), done)
    made.start()
    return made, done


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.003)


def test_a_slow_driver_joins_when_it_answers(drivers: Drivers) -> None:
    made, done = started()
    assert done.wait(GUARD)
    found, absent = made.late()
    assert found == []
    assert isinstance(absent["gpu_nvidia"], SilentDriver)
    assert "The NVIDIA driver did not answer within the run" in str(absent["gpu_nvidia"])
    assert "No GPU" in str(absent["gpu_drm"]), "a silent driver does not keep another one waiting"
    assert not made.answered
    drivers.release.set()
    until(lambda: made.answered)
    found, absent = made.late()
    assert ([source.name for source in found], absent) == (["gpu_nvidia"], {})
    assert not made.answered
    assert drivers.limits == [None, None]


def test_fast_drivers_are_not_waited_for_longer(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PATIENCE", GUARD)
    drivers.release.set()
    made, done = started()
    assert done.wait(GUARD)
    found, absent = made.late()
    assert [source.name for source in found] == ["gpu_nvidia"]
    assert set(absent) == {"gpu_drm"}


def test_a_driver_is_not_called_silent_if_the_command_ended_first(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PATIENCE", GUARD)
    made, done = started()
    done.set()
    _, absent = made.late()
    assert not isinstance(absent["gpu_nvidia"], SilentDriver)
    assert "did not answer within the run" in str(absent["gpu_nvidia"])

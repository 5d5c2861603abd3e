"""The functions that Ray is given to run: of the kind that they were, each call a task."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_memwatch.in_target.operations import activate, deactivate
from otel_memwatch.plugins.ray import _measuring, _PeaksInRay, measured
from otel_memwatch.plugins.tasks import TaskFigures
from otel_memwatch.record.open import read_run


class Info(NamedTuple):
    function: Any
    function_name: str


class Descriptor(NamedTuple):
    function_id: bytes
    class_name: str
    function_name: str


def recorded(tmp_path: Path) -> list[str]:
    deactivate()
    (tmp_path / "run.json").write_text('{"schema": 1, "command": ["x"], "state": "finished"}')
    return [operation.name for operation in read_run(tmp_path).operations]


async def in_turn(values: AsyncIterator[int]) -> list[int]:
    return [value async for value in values]


def test_each_kind_of_function_stays_what_it_is(tmp_path: Path) -> None:
    activate(str(tmp_path))

    async def coroutine(value: int) -> int:
        await asyncio.sleep(0)
        return value

    def generator(number: int) -> Iterator[int]:
        yield from range(number)

    async def asynchronous(number: int) -> AsyncIterator[int]:
        for value in range(number):
            yield value

    assert measured(abs, "plain")(-3) == 3
    assert inspect.iscoroutinefunction(measured(coroutine, "coroutine"))
    assert asyncio.run(measured(coroutine, "coroutine")(4)) == 4
    assert inspect.isgeneratorfunction(measured(generator, "generator"))
    assert list(measured(generator, "generator")(3)) == [0, 1, 2]
    assert inspect.isasyncgenfunction(measured(asynchronous, "asynchronous"))
    assert asyncio.run(in_turn(measured(asynchronous, "asynchronous")(2))) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        measured(lambda: 1 / 0, "fails")()
    assert recorded(tmp_path) == ["plain", "coroutine", "generator", "asynchronous", "fails"]


def test_what_ray_keeps_of_a_method_exists_still(tmp_path: Path) -> None:
    activate(str(tmp_path))

    async def method(_actor: object, value: int) -> int:
        return value

    def executor(actor: object, *args: Any) -> Any:
        return method(actor, *args)

    executor.method, executor.name = method, "method"  # type: ignore[attr-defined]
    asked = []

    def find(job: str, descriptor: Descriptor) -> Info:
        asked.append((job, descriptor))
        return Info(executor, "method")

    found = _measuring(find)
    info = found("job", Descriptor(b"1", "Actor", "method"))
    assert (info.function.method, info.function.name, info.function_name) == (method, "method", "method")
    assert asyncio.run(info.function(None, 5)) == 5
    assert found("job", Descriptor(b"1", "Actor", "method")) is info
    own = found("job", Descriptor(b"2", "Actor", "__ray_terminate__"))
    assert own.function is executor, "Ray's own methods are not measured"
    assert len(asked) == 3
    assert recorded(tmp_path) == ["Actor.method"]


def test_a_ray_that_names_its_functions_otherwise_runs_them(capfd: pytest.CaptureFixture[str]) -> None:
    info = Info(abs, "abs")
    found = _measuring(lambda _job, _descriptor: info)
    assert found("job", object()) is info
    assert "a task of Ray is not measured: AttributeError" in capfd.readouterr().err


class Gauge:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tags["name"]] = value


class SlowFigures(TaskFigures):
    """Figures of which another thread comes in between whenever their name is asked for."""

    @property
    def name(self) -> str:  # type: ignore[override]
        time.sleep(0.005)
        return str(self[0])


def test_calls_that_end_in_several_threads_at_once_lose_no_peak() -> None:
    peaks, gauge = _PeaksInRay(), Gauge()
    peaks._gauge = gauge

    def end_calls(thread: int) -> None:
        for size in (200, 100):
            peaks.add(SlowFigures(f"call{thread}", 1.0, 0, size, 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(end_calls, range(4)))
    assert gauge.values == {f"call{thread}": 200.0 for thread in range(4)}

"""What a recording reads of the control group, also where sources of drivers have joined it later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.config import settings
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor import recording
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording import RunRecording
from otel_memwatch.monitor.run_directory import create_directory
from otel_memwatch.monitor.run_info import OOM_KILLS, TargetInfo
from otel_memwatch.monitor.sampler import Flag
from otel_memwatch.record.writer import RunWriter


class Fixed:
    """A source with these values at every tick."""

    blind = None

    def __init__(self, name: str, values: dict[Column, list[Value]]) -> None:
        self.name = name
        self.columns = tuple(values)
        self._values = values

    def read(self, _now: float) -> Sequence[Value]:
        return [values.pop(0) if len(values) > 1 else values[0] for values in self._values.values()]

    def info(self) -> list[dict[str, Any]]:
        return []


TREE = Column("memwatch.tree.memory.usage")
KILLS = Column(*OOM_KILLS, 1.0)
GPU = Column("hw.gpu.memory.usage", (("hw.id", "GPU-1"),))


class Opened:
    """The sources of the kernel at once, that of a driver later."""

    def __init__(self, _context: object, done: Flag) -> None:
        self._done = done

    def first(self) -> tuple[list[Fixed], dict[str, Exception]]:
        return [Fixed("process_tree", {TREE: [1]}), Fixed("cgroup", {KILLS: [7, 9]})], {}

    def start(self) -> None:
        self._done.set()

    def late(self) -> tuple[list[Fixed], dict[str, Exception]]:
        return [Fixed("gpu_nvidia", {GPU: [1000]})], {}


def test_kills_are_counted_where_a_driver_has_moved_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "Opening", Opened)
    create_directory(tmp_path / "run")
    messages = Messages(pytest.fail)
    writer = RunWriter(tmp_path / "run", messages.problem)
    target = TargetInfo("attach", ("program",), os.getpid(), 0.0)
    writer.update(host={}, command=[], target={"pid": target.pid}, started={"monotonic": 0.0}, interval=0.1)
    drivers_asked, stop = Flag(), Flag()
    run = RunRecording(writer, target, settings("attach", {}, {}), messages, drivers_asked)
    run.take_first_tick()
    assert run.growth_of_group(OOM_KILLS) == 0
    run.open_the_rest(stop, None, messages.info)
    stop.set()
    run.run(stop)
    assert run.sampler.columns == (TREE, GPU, KILLS)
    assert run.growth_of_group(OOM_KILLS) == 2
    writer.close()

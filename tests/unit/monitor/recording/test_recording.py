"""What a recording reads of the control group, also where sources of drivers have joined it later; what it does before its end."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.config import settings
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording import recording, run_info
from otel_memwatch.monitor.recording.batching import PeriodicAction
from otel_memwatch.monitor.recording.recording import RunRecording
from otel_memwatch.monitor.recording.run_info import LIMIT, OOM_KILLS, TargetInfo, disk_rate
from otel_memwatch.monitor.run.run_directory import create_directory
from otel_memwatch.record.writer import RunWriter
from otel_memwatch.run.operation_aggregator import OperationAggregator
from otel_memwatch.runtime.threads import Alarm, Flag
from tests.support import recorded


class Fixed:
    """A source with these values at every tick."""

    blind = None
    resting = False
    runs: int | None = None

    def __init__(self, name: str, values: dict[Column, list[Value]]) -> None:
        self.name = name
        self.columns = tuple(values)
        self._values = values

    def read(self, _now: float) -> Sequence[Value]:
        return [values.pop(0) if len(values) > 1 else values[0] for values in self._values.values()]

    def info(self) -> list[dict[str, Any]]:
        return []

    def pids(self) -> list[int]:
        return []


TREE = Column("memwatch.tree.memory.usage")
KILLS = Column(*OOM_KILLS, 1.0)
GPU = Column("hw.gpu.memory.usage", (("hw.id", "GPU-1"),))


class Opened:
    """The sources of the kernel at once, that of a driver later."""

    def __init__(self, _context: object, done: Flag) -> None:
        self._done = done

    def first(self, *, ended: bool) -> tuple[list[Fixed], dict[str, Exception]]:
        return [Fixed("process_tree", {TREE: [1]}), Fixed("cgroup", {KILLS: [7, 9]})], {}

    answered = False

    def start(self) -> None:
        self._done.set()

    def late(self) -> tuple[list[Fixed], dict[str, Exception]]:
        return [Fixed("gpu_nvidia", {GPU: [1000]})], {}


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunWriter:
    """Of a run whose sources are those above."""
    monkeypatch.setattr(recording, "Opening", Opened)
    create_directory(tmp_path / "run")
    made = RunWriter(tmp_path / "run", pytest.fail)
    made.update(host={}, command=[], target={"pid": os.getpid()}, started={"monotonic": 0.0}, interval=0.1)
    return made


def test_kills_are_counted_where_a_driver_has_moved_the_columns(writer: RunWriter) -> None:
    messages = Messages(pytest.fail)
    target = TargetInfo("attach", ("program",), os.getpid(), 0.0)
    drivers_asked, stop = Flag(), Flag()
    run = RunRecording(writer, target, settings("attach", {}, {}), messages, drivers_asked)
    run.begin()
    assert run.growth_of_group(OOM_KILLS) == 0
    run.open_the_rest(stop, None, messages.info)
    stop.set()
    run.run(stop, Alarm())
    assert run.sampler.columns[:-1] == (TREE, GPU, KILLS)
    assert run.growth_of_group(OOM_KILLS) == 2
    writer.close()


@pytest.mark.parametrize("alone", [False, True])
def test_of_a_program_that_has_just_begun_operations_are_read_before_the_second_tick(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """And what its end needs is loaded: it may end before that tick. But not where it needs the only processor itself."""
    monkeypatch.setattr(recording, "_ALONE", alone)
    messages = Messages(pytest.fail)
    target = TargetInfo("attach", ("program",), os.getpid(), math.inf)  # it never gets old
    chosen = settings("attach", {"interval": 0.02 if alone else 60.0}, {})
    run = RunRecording(writer, target, chosen, messages, Flag())
    loaded: list[str] = []
    monkeypatch.setattr(run, "_to_load", ["what.the.end.needs", "and.this"])
    monkeypatch.setattr(recording, "load_module", loaded.append)
    run.begin()
    run.followed.have_begun()
    lines = [recorded.opened(2, 1.0, "step"), recorded.closed(2, 2.0, 9.0)]
    text = "".join(
        json.dumps(line) + "\n" for line in ({"schema": 1, "pid": 7, "start": 0.5, "exact": True}, *lines)
    )
    (writer.path / "operations-7.jsonl").write_text(text)

    class EndsOnceRead(Flag):
        def wait(self, timeout: float) -> bool:
            return run.followed.aggregator is not None or super().wait(timeout)

    run._wait(EndsOnceRead())

    closed = 0 if run.followed.aggregator is None else run.followed.aggregator.closed
    assert (closed, loaded) == ((0, []) if alone else (1, ["what.the.end.needs", "and.this"]))
    writer.close()


def test_a_program_that_has_just_begun_is_not_waited_for_beyond_the_next_tick(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_ALONE", False)
    target = TargetInfo("attach", ("program",), os.getpid(), math.inf)  # it never gets old
    run = RunRecording(
        writer, target, settings("attach", {"interval": 0.005}, {}), Messages(pytest.fail), Flag()
    )
    monkeypatch.setattr(run, "_to_load", [])
    run.begin()
    run.followed.have_begun()
    waits: list[float] = []

    class Noted(Flag):
        def wait(self, timeout: float) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    for _ in range(5):
        run._wait(Noted())
    assert waits
    assert max(waits) <= 0.005
    writer.close()


@pytest.mark.parametrize("marks", [False, True])
def test_a_tick_comes_in_time_where_a_program_has_marked_nothing_yet(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch, marks: bool
) -> None:
    """What its end needs is loaded until then, and no longer; operations are read for half of an interval even so."""
    monkeypatch.setattr(recording, "_ALONE", False)
    target = TargetInfo("attach", ("program",), os.getpid(), math.inf)  # it never gets old
    run = RunRecording(
        writer, target, settings("attach", {"interval": 0.1}, {}), Messages(pytest.fail), Flag()
    )
    run.begin()
    run.followed.have_begun()
    if marks:
        run.followed.aggregator = OperationAggregator()
    monkeypatch.setattr(run, "_to_load", [])
    monkeypatch.setattr(run.sampler, "left_to_probe", lambda: 0.0)
    reads: list[bool] = []

    def read() -> bool:
        reads.append(True)
        return False

    monkeypatch.setattr(run.followed, "read", read)
    run._wait(Flag())
    assert bool(reads) is marks
    writer.close()


def test_operations_are_searched_for_less_often_while_no_process_runs(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetInfo("attach", ("program",), os.getpid(), time.monotonic())
    run = RunRecording(
        writer, target, settings("attach", {"interval": 0.1}, {}), Messages(pytest.fail), Flag()
    )
    run.begin()
    searches: list[float] = []
    snapshot = run.sampler.latest()
    assert snapshot is not None
    monkeypatch.setattr(run.followed, "read", lambda: searches.append(now) or False)
    run.followed.begin()
    for now, runs in (
        (900.0, 4),
        (900.1, 4),
        (900.4, 4),
        (900.6, 4),
        (900.7, 5),
        (900.8, None),
        (900.9, None),
    ):
        run.tree.runs = runs
        run._on_tick(snapshot._replace(time=now))
    assert searches == [900.0, 900.6, 900.7, 900.8, 900.9]
    run.tree.runs = run._runs = 6
    for now, many in ((901.0, True), (901.1, False)):
        run.followed.many = many
        run._on_tick(snapshot._replace(time=now))
    assert searches[5:] == [901.0], "reading between samples ends with the next search"
    writer.close()


def test_an_action_runs_at_the_first_sample_at_which_it_is_due() -> None:
    calls: list[float] = []
    action = PeriodicAction(calls.append, 1.0)
    action.run_if_due(5.0)
    assert calls == []
    action.due = 0.0
    for now in (5.0, 5.5, 6.1, 7.0, 7.2):
        action.run_if_due(now)
    assert calls == [5.0, 6.1, 7.2]


def test_an_action_may_change_the_period() -> None:
    calls: list[float] = []

    def act(now: float) -> None:
        calls.append(now)
        action.period = 0.0 if now < 3 else 10.0

    action = PeriodicAction(act)
    action.due = 0.0
    for now in (1.0, 2.0, 3.0, 4.0, 14.0):
        action.run_if_due(now)
    assert calls == [1.0, 2.0, 3.0, 14.0]


@pytest.mark.parametrize("marks", [False, True])
def test_a_command_that_has_ended_has_a_history_only_for_its_operations(
    writer: RunWriter, marks: bool
) -> None:
    ended = Flag()
    ended.set()
    target = TargetInfo("attach", ("program",), os.getpid(), math.inf)
    run = RunRecording(writer, target, settings("attach", {}, {}), Messages(pytest.fail), ended)
    run.begin()
    if marks:
        lines = ({"schema": 1, "pid": 7, "start": 0.5, "exact": True}, recorded.opened(2, 1.0, "step"))
        (Path(writer.path) / "operations-7.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    run.open_the_rest(ended, None, pytest.fail)
    run.run(ended, Alarm())
    while run.followed.read():
        pass

    assert (run.batcher.history is not None) is marks
    assert (run.followed.aggregator is not None) is marks
    assert run.batcher.aggregator is not None
    assert run.batcher.aggregator.quality()["ticks"] == 2
    writer.close()


def test_a_command_that_ended_before_its_first_sample_has_one_sample(writer: RunWriter) -> None:
    stop = Flag()
    stop.set()
    target = TargetInfo("wrap", ("program",), os.getpid(), 0.0)
    run = RunRecording(writer, target, settings("wrap", {}, {}), Messages(pytest.fail), stop, ended=True)
    run.begin()
    run.open_the_rest(stop, None, pytest.fail)
    run.run(stop, Alarm())
    assert run.batcher.aggregator is not None
    assert run.batcher.aggregator.quality()["ticks"] == 1
    assert run.watched_to_the_end
    assert writer.info["limits"]["host_bytes"]
    writer.close()


@pytest.mark.parametrize(
    ("statistics", "rate"),
    [
        (b"60 1 8000 7 4 9 2000 3 0 2000 12 8 1 3 6 5 1\n", 10_000 * 512 // 2),
        (b"0 0 0 0 0 0 0 0 0 0 0\n", None),  # never used
        (b"", None),
        (None, None),  # no disk of this machine
    ],
)
def test_the_disk_of_a_directory_has_a_rate_if_it_was_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statistics: bytes | None, rate: int | None
) -> None:
    def read(path: str) -> bytes:
        assert path.startswith("/sys/dev/block/")
        if statistics is None:
            raise FileNotFoundError(path)
        return statistics

    monkeypatch.setattr(run_info, "read_once", read)
    assert disk_rate(str(tmp_path)) == rate
    assert disk_rate(str(tmp_path / "removed")) is None


def test_at_rest_the_actions_need_no_samples_of_their_own(writer: RunWriter) -> None:
    """The sources take a sample each second. A search for operations in between would be a second one."""
    target = TargetInfo("attach", ("program",), os.getpid(), 0.0)
    run = RunRecording(writer, target, settings("attach", {}, {}), Messages(pytest.fail), Flag())
    run.begin()
    run.open_the_rest(Flag(), None, pytest.fail)
    sample = run.sampler.latest()
    assert sample is not None
    begun = sample.time + 100.0  # no action of another period is due soon
    run._on_tick(sample._replace(time=begun + 0.7))
    for second in range(1, 6):
        run._on_tick(sample._replace(time=begun + second))
        assert run._next_action > begun + second + (0.1 if second == 1 else 1.0)
    writer.close()


@pytest.mark.parametrize(("values", "limitless"), [([None], True), ([None, None, 5], False)])
def test_it_knows_whether_a_sample_has_shown_a_limit(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch, values: list[Value], *, limitless: bool
) -> None:
    """Then nothing needs to search the samples for one at the end."""
    sources = [Fixed("process_tree", {TREE: [1]}), Fixed("cgroup", {Column(*LIMIT, 1.0): values})]
    monkeypatch.setattr(Opened, "first", lambda _, ended: (sources, {}))
    target = TargetInfo("attach", ("program",), os.getpid(), 0.0)
    run = RunRecording(writer, target, settings("attach", {}, {}), Messages(pytest.fail), Flag())
    run.begin()
    run.open_the_rest(Flag(), None, pytest.fail)
    assert run.limitless
    for _ in range(2):
        run.sampler.tick()
    assert run.limitless == limitless
    writer.close()

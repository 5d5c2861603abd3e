"""Every source keeps the contract: catalogue metrics, their attributes, one value for each column."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.catalog import METRICS, Instrument
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
from otel_memwatch.monitor.sampling.sources import (
    GPU_SOURCES,
    SOURCES,
    Context,
    Entry,
    Opening,
    open_sources,
)
from otel_memwatch.runtime import kernel
from otel_memwatch.runtime.procfs.sums import quirks
from otel_memwatch.runtime.threads import Flag

if TYPE_CHECKING:
    from otel_memwatch.model import Source

NAMES = tuple(entry.name for entry in SOURCES if not entry.gpus)
GUARD = 60.0
WAYS = ["linux", "psutil"] if sys.platform.startswith("linux") else ["psutil"]


@pytest.fixture
def target() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n", timeout=GUARD)


def opened(pid: int, way: str, *, own: OwnCgroup | None = None) -> list[Source]:
    sources, _ = open_sources(Context(pid, 0.1, system=way, own_cgroup=own), NAMES)
    assert sources
    return sources


@pytest.mark.parametrize("way", WAYS)
def test_columns_are_rows_of_the_catalogue(target: int, way: str) -> None:
    for source in opened(target, way):
        for column in source.columns:
            row = METRICS[column.metric]
            assert row.source == source.name
            assert tuple(sorted(name for name, _ in column.attributes)) == tuple(sorted(row.attributes))
            assert column.attributes == tuple(sorted(column.attributes))
            assert all(value for _, value in column.attributes)
        keys = [(column.metric, column.attributes) for column in source.columns]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("way", WAYS)
def test_one_value_for_each_column(target: int, way: str) -> None:
    sources = opened(target, way)
    previous: dict[tuple[str, object], float] = {}
    for _ in range(4):
        for source in sources:
            values = source.read(time.monotonic())
            assert len(values) == len(source.columns)
            for column, value in zip(source.columns, values, strict=True):
                row = METRICS[column.metric]
                if value is None:
                    continue
                assert value >= 0
                assert isinstance(value, int) or not row.integer
                if row.instrument is Instrument.COUNTER:
                    assert value >= previous.get((column.metric, column.attributes), 0)
                    previous[column.metric, column.attributes] = value
        time.sleep(0.05)


@pytest.mark.parametrize("way", WAYS)
def test_values_that_are_due_at_every_tick_are_known_at_every_tick(target: int, way: str) -> None:
    for source in opened(target, way):
        if source.name == "cgroup":
            continue
        for _ in range(3):
            values = source.read(time.monotonic())
            for column, value in zip(source.columns, values, strict=True):
                assert value is not None or column.period > 0, column


def test_slow_columns_are_never_faster_than_a_tick(target: int) -> None:
    for way in WAYS:
        sources, _ = open_sources(Context(target, 7.0, system=way), NAMES)
        assert sources
        assert {column.period for source in sources for column in source.columns} <= {0.0, 7.0}


def test_all_that_is_in_the_catalogue_can_be_read() -> None:
    listed = {entry.name for entry in SOURCES}
    assert {row.source for row in METRICS.values() if row.source in NAMES} <= listed
    assert next(iter(SOURCES)).name == "process_tree"


def test_a_source_that_is_absent_says_why_and_stops_no_other(
    target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(context: Context) -> Source:
        raise Unavailable("There is none.", "get one")

    def broken(context: Context) -> Source:
        raise ZeroDivisionError

    package = "otel_memwatch.monitor.sampling.sources"
    for name, open_source in (("absent", unavailable), ("broken", broken)):
        monkeypatch.setitem(sys.modules, f"{package}.{name}", SimpleNamespace(open_source=open_source))
    entries = (Entry("absent", "absent"), Entry("broken", "broken"), *SOURCES)
    monkeypatch.setattr(f"{package}.SOURCES", entries)
    sources, missing = open_sources(
        Context(target, 0.1, system="psutil"), ("absent", "broken", "process_tree")
    )
    assert [source.name for source in sources] == ["process_tree"]
    assert missing["absent"].hint == "get one"
    assert "ZeroDivisionError" in missing["broken"].message


def test_linux_sources_are_absent_elsewhere(target: int) -> None:
    sources, missing = open_sources(Context(target, 0.1, system="psutil"), NAMES)
    assert {source.name for source in sources} == {"process_tree", "host"}
    assert set(missing) == {"cgroup", "pressure", "run_queue", "memory_detail"}


def test_pids_come_from_the_process_tree(target: int) -> None:
    for way in WAYS:
        context = Context(target, 0.1, system=way)
        assert context.pids() == (target,)
        sources, _ = open_sources(context, ("process_tree",))
        context = context.knowing(sources)
        assert context.tree is sources[0]
        assert context.pids() == ()
        sources[0].read(time.monotonic())
        assert context.pids() == (target,)


@pytest.mark.skipif("linux" not in WAYS, reason="drivers are asked on Linux only")
def test_sources_that_ask_drivers_are_opened_apart_and_know_the_tree(target: int) -> None:
    opening = Opening(Context(target, 0.1), Flag())
    first, missing = opening.first()
    late, silent = opening.late()
    assert not late
    assert set(silent) == GPU_SOURCES
    assert {source.name for source in first} | set(missing) | GPU_SOURCES == {entry.name for entry in SOURCES}
    assert not {source.name for source in first} & GPU_SOURCES
    assert opening._context.tree is first[0]


@pytest.mark.skipif("linux" not in WAYS, reason="drivers are asked on Linux only")
def test_a_command_that_has_ended_is_read_from_few_sources(target: int) -> None:
    first, missing = Opening(Context(target, 0.1), Flag()).first(ended=True)
    unread = {"pressure", "run_queue", "memory_detail"}
    assert {source.name for source in first} | set(missing) == {"process_tree", "host", "cgroup"} | unread
    for name in unread:
        assert str(missing[name]) == f"{name} was not read because the command had already ended."


def test_old_kernels_have_quirks(tmp_path: Path) -> None:
    found = quirks(tmp_path, "5.15.0-generic")
    assert len(found) == 5
    assert all(sentence.endswith(".") for sentence in found)
    (tmp_path / f"self/task/{os.getpid()}").mkdir(parents=True)
    for name in ("io", "clear_refs", f"task/{os.getpid()}/children"):
        (tmp_path / "self" / name).touch()
    assert quirks(tmp_path, "6.18.0") == []
    assert kernel.rss_error(threads=10, cpus=2, release="6.1") == 3 * 640 * os.sysconf("SC_PAGE_SIZE")

"""A run while it goes on, from its growing record: the same figures as when it is read at once."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.run import load
from otel_memwatch.text import duration
from otel_memwatch.wings.live import growing_record, lines
from otel_memwatch.wings.live.live_run import LiveRun
from tests.support import recorded
from tests.support.recorded import CALL_READ, LIMIT, MIB, STARTED, TREE

if TYPE_CHECKING:
    from pathlib import Path


def running(path: Path, **info: Any) -> None:
    """Makes of the record one that goes on: its monitor is this process."""
    file = path / "run.json"
    content = json.loads(file.read_text()) | {"state": "running", "peaks": None, "totals": None, "exit": None}
    content |= {
        "ended": None,
        "quality": None,
        "host": {"name": os.uname().nodename, "memory_bytes": 1 << 34},
    }
    content["monitor"] |= {"pid": os.getpid()}
    content["started"] |= {"wall": 2e9}
    file.write_text(json.dumps(content | info))


def grow(path: Path, lines: list[object]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_looks_one_after_the_other_say_what_one_look_says(tmp_path: Path) -> None:
    path = recorded.nested(tmp_path / "run")
    running(path)
    samples, whole = path / "samples.jsonl", (path / "samples.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    samples.write_text("")
    live = LiveRun(path)
    for begin in range(0, len(lines), 7):
        with samples.open("a") as file:
            # The last line of a look is torn: its rest comes with the next.
            text = "".join(lines[begin : begin + 7])
            file.write(text[:-9])
            file.flush()
            live.look()
            file.write(text[-9:])
    figures, run = live.look(), load(path)
    assert figures.peaks.tree is not None
    assert run.peaks.tree is not None
    assert figures.peaks.tree.bytes == run.peaks.tree.bytes
    assert figures.seconds == pytest.approx(float(run.samples().time[-1]), abs=1e-3)
    assert max(value for _, value in figures.curve) == int(run.samples().column(TREE[0]).max())
    assert [o.name for o in figures.operations] == ["Train", "Export $model_$ to ÖNNX 😀"]
    live.close()


def ticks(values: list[float], step: float = 0.1, first: float = 0.0) -> list[list[float]]:
    return [[STARTED + first + step * number, round(value * MIB), 0] for number, value in enumerate(values)]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A run without ticks that may have 1 GiB; its columns are resident memory and something else."""
    path = recorded.record(
        tmp_path / "run", seconds=1, series=[TREE, CALL_READ], limits={"cgroup_bytes": 1 << 30}
    )
    running(path)
    return path


def test_steady_growth_shows_when_the_limit_is_reached(bare: Path) -> None:
    grow(bare / "samples.jsonl", ticks([100 + n for n in range(100)]))
    figures = LiveRun(bare).look()
    assert figures.pace == pytest.approx(10 * MIB, rel=0.01)
    assert figures.to_limit == pytest.approx((1024 - 199) / 10, rel=0.02)


@pytest.mark.parametrize("values", [[100, 200] * 40, [100] * 80, [200 - n for n in range(80)], [1, 2]])
def test_what_is_no_pace_is_none(bare: Path, values: list[float]) -> None:
    grow(bare / "samples.jsonl", ticks(values))
    assert LiveRun(bare).look().to_limit is None


def test_a_single_process_has_a_resident_size_and_no_needed_memory(bare: Path) -> None:
    """It includes file pages, so it may exceed the peak of needed memory below it."""
    (bare / "processes.jsonl").write_text("")
    grow(bare / "samples.jsonl", ticks([100, 111]))
    figures = LiveRun(bare).look()
    assert (figures.now, figures.needed) == (111 * MIB, False)
    fact = next(iter(lines.facts(figures, None, 0.1)))
    assert fact.label == "resident now"
    assert fact.text == "111.0 MiB (with file pages; shared pages counted once per process)"


def test_a_source_that_opens_late_brings_columns(bare: Path) -> None:
    live = LiveRun(bare)
    grow(bare / "samples.jsonl", ticks([100, 300]))
    assert live.look().now == 300 * MIB
    columns = [{"metric": name, "attributes": more} for name, more in (LIMIT, TREE, CALL_READ)]
    grow(
        bare / "samples.jsonl", [{"schema": 1, "columns": columns}, [STARTED + 0.2, 500 * MIB, 200 * MIB, 0]]
    )
    figures = live.look()
    assert (figures.now, figures.limit) == (200 * MIB, 500 * MIB)
    assert max(value // MIB for _, value in figures.curve) == 300


def test_the_curve_of_a_long_run_keeps_its_highest(bare: Path) -> None:
    grow(bare / "samples.jsonl", ticks([900 if n == 3333 else 100 for n in range(20_000)], step=1.0))
    figures = LiveRun(bare).look()
    assert len(figures.curve) <= 1024
    assert max(figures.curve, key=lambda point: point[1])[0] == pytest.approx(3333, abs=30)


def test_processes_come_and_go(bare: Path) -> None:
    begin = {"event": "seen", "time": STARTED, "start": STARTED, "ppid": 1}
    grow(
        bare / "processes.jsonl",
        [
            begin | {"pid": 7, "argv": ["a"], "rss": 5 * MIB},
            begin | {"pid": 8, "argv": ["b"], "rss": 9 * MIB},
            {"event": "figures", "time": STARTED + 0.1, "pid": 7, "start": STARTED, "rss": 50 * MIB},
            {"event": "exit", "time": STARTED + 0.2, "pid": 8, "start": STARTED, "exit_code": 0},
        ],
    )
    live = LiveRun(bare)
    grow(bare / "samples.jsonl", ticks([60, 60]))
    assert [(p.pid, p.rss) for p in live.look().processes] == [(7, 50 * MIB), (8, 9 * MIB)]
    grow(bare / "samples.jsonl", ticks([60], first=0.2))
    assert [p.pid for p in live.look().processes] == [7]


def test_a_run_that_has_ended_is_shown_as_its_summary(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last sample may be later than the end: `true` ended after 0.7 ms, and was shown with 410 ms."""
    run = LiveRun(recorded.short(tmp_path / "run"))
    lines.one_look(run)
    run.close()
    shown = capfd.readouterr().out
    assert "now" not in shown
    assert "so far" not in shown
    assert f"after {duration(load(run.path).seconds)}" in shown


def test_before_the_first_tick_nothing_is_known(bare: Path) -> None:
    figures = LiveRun(bare).look()
    assert (figures.now, figures.seconds, figures.curve) == (None, 0.0, [])
    assert figures.peaks.tree is None or figures.peaks.tree.certainty is not Certainty.EXACT


def test_a_look_writes_nothing(bare: Path) -> None:
    grow(bare / "samples.jsonl", ticks([100, 200]))
    before = {file.name: file.stat().st_mtime_ns for file in bare.iterdir()}
    LiveRun(bare).look()
    assert {file.name: file.stat().st_mtime_ns for file in bare.iterdir()} == before


def test_a_first_look_at_a_long_record_does_not_wait_for_all_of_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is now stands at the end; the peak is that of what has been read, until all has been."""
    monkeypatch.setattr(growing_record, "_BLOCK", 4096)
    monkeypatch.setattr(growing_record, "_END", 4096)
    sizes = [900.0 if n == 2500 else 100.0 + n / 100 for n in range(3000)]
    grow(bare / "samples.jsonl", ticks(sizes))
    live = LiveRun(bare)
    first = live.look(0)
    assert 0 < first.read < 0.5
    assert first.now == round(sizes[-1] * MIB)
    assert first.seconds == pytest.approx(299.9)
    assert first.curve[-1] == (pytest.approx(299.9), first.now)
    assert first.peaks.tree is None  # a resident size is no lower bound of needed memory
    looks = 1
    while (figures := live.look(0)).read < 1:
        looks += 1
        assert figures.now == first.now
    assert looks > 3
    whole = LiveRun(bare).look()
    assert whole.read == 1
    assert (figures.peaks, figures.curve, figures.now) == (whole.peaks, whole.curve, whole.now)
    assert max(value for _, value in whole.curve) == 900 * MIB


def test_an_open_operation_has_at_least_what_its_process_has_now(tmp_path: Path) -> None:
    """Its last boundary was before most of its memory."""
    path = recorded.record(
        tmp_path / "run",
        seconds=3.0,
        series=[TREE],
        ticks=[(1.0, 140 * MIB)],
        processes=recorded.process(100, 0.0, None, 140, time=0.9, rss=140 * MIB),
        operations={100: [recorded.opened(1, 0.5, "Warm up"), recorded.opened(2, 0.95, "later")]},
    )
    running(path)
    first, later = LiveRun(path).look().operations
    assert first.peak is not None
    assert later.peak is not None
    assert 139 * MIB <= (first.peak.low or 0) <= 140 * MIB
    assert (later.peak.low or 0) <= 50 * MIB

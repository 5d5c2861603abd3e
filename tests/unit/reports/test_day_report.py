"""Figures of one day: those of its samples, and none of the other days'."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_memwatch.cli.report import command
from otel_memwatch.errors import MemwatchError
from tests.support.run_directory import MIB, STARTED, RunDirectory, column

HOUR = 3600.0


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run from Monday noon to Friday noon, in a time zone ahead of UTC; memory has its peak on Tuesday."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    noon = time.mktime((2026, 11, 2, 12, 0, 0, 0, 0, -1))
    directory = RunDirectory(
        tmp_path / "week",
        started={"wall": noon, "monotonic": STARTED},
        ended={"wall": noon + 96 * HOUR, "monotonic": STARTED + 96 * HOUR},
    )
    names = ("memwatch.tree.memory.usage", "memwatch.tree.memory.needed", "memwatch.tree.memory.needed.low")
    directory.columns([*map(column, names), column("memwatch.tree.cpu.time", cpu__mode="user")])
    for hour in range(97):
        level = (900 if hour == 20 else 100 + hour // 24) * MIB
        directory.tick(hour * HOUR, level, level, level, hour * 60.0)
    yield directory.path
    monkeypatch.undo()
    time.tzset()


def report(path: Path, *words: str) -> str:
    done = CliRunner().invoke(command, [str(path), *words], catch_exceptions=False, standalone_mode=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_day_has_a_separate_peak_and_cpu_time(week: Path) -> None:
    tuesday, wednesday = (
        json.loads(report(week, "--day", day, "--json")) for day in ("2026-11-03", "2026-11-04")
    )
    assert tuesday["tree_peak"]["low"] == 900 * MIB
    assert wednesday["tree_peak"]["low"] == 102 * MIB
    assert (tuesday["start"], tuesday["seconds"]) == (12 * HOUR, 24 * HOUR)
    assert wednesday["totals"]["tree_cpu_seconds"] == 24 * 60


def test_a_day_has_the_lower_bound_of_the_run_that_was_seen_then(week: Path) -> None:
    """The run's figure may come from a reading that no sample of the tree has: the proportional sizes of all pages."""
    info = json.loads((week / "run.json").read_text())
    peak = {"bytes": 950 * MIB, "low": 950 * MIB, "certainty": "interval", "evidence": ["one_sample"]}
    info["peaks"] = {"tree": {**peak, "at": 20 * HOUR}}
    (week / "run.json").write_text(json.dumps(info))
    lows = [
        json.loads(report(week, "--day", f"2026-11-{day:02}", "--json"))["tree_peak"]["low"]
        for day in range(2, 7)
    ]
    assert [low // MIB for low in lows] == [100, 950, 102, 103, 103]


def test_a_run_of_one_day_has_the_same_peak_on_it(tmp_path: Path) -> None:
    noon = time.mktime((2026, 11, 2, 12, 0, 0, 0, 0, -1))
    directory = RunDirectory(
        tmp_path / "run",
        started={"wall": noon, "monotonic": STARTED},
        ended={"wall": noon + 2, "monotonic": STARTED + 2},
        peaks={
            "tree": {"bytes": 9 * MIB, "low": 7 * MIB, "high": 9 * MIB, "certainty": "interval", "at": None}
        },
    )
    directory.columns([column("memwatch.tree.memory.usage"), column("memwatch.tree.memory.needed.low")])
    for second in range(3):
        directory.tick(second, MIB, MIB)
    peak = json.loads(report(tmp_path / "run", "--day", "2026-11-02", "--json"))["tree_peak"]
    assert (peak["low"], peak["high"]) == (7 * MIB, 9 * MIB)


def test_the_first_day_begins_with_the_run(week: Path) -> None:
    text = report(week, "--day", "2026-11-02")
    assert "2026-11-02 12:00:00 to 2026-11-03 00:00:00 (12 h 00 min)" in text
    assert "100.0 MiB" in text
    assert "CPU                   12 min 00 s (0.02 cores on average)" in text


def test_today_and_yesterday(week: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, localtime = time.mktime((2026, 11, 4, 1, 0, 0, 0, 0, -1)), time.localtime
    monkeypatch.setattr(time, "localtime", lambda seconds=now: localtime(seconds))
    for day, date in (("today", "2026-11-04"), ("yesterday", "2026-11-03")):
        assert report(week, "--day", day) == report(week, "--day", date)


@pytest.mark.parametrize(
    "words", [("2026-11-07",), ("2026-11-01",), ("noon",), ("2026",), ("2026-11-03", "--html", "x")]
)
def test_other_days_are_refused(week: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(MemwatchError):
        report(week, "--day", *words)

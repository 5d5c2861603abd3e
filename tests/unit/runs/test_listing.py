"""Which runs there are below a directory, and which one is the newest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.runs.find import find_run
from otel_memwatch.runs.listing import list_runs
from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs in the usual place: "a" of yesterday, "b" of today, and one whose run.json is none."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "memwatch-runs"
    directory.mkdir()
    for name, days in (("b", 1), ("a", 0)):
        recorded.short(directory / name)
        path = directory / name / "run.json"
        info = json.loads(path.read_text())
        info["started"]["wall"] += 86400 * days
        path.write_text(json.dumps(info))
    (directory / "broken").mkdir()
    (directory / "broken" / "run.json").write_text("{")
    return directory


def test_all_runs_are_listed_by_their_start_broken_ones_with_the_reason(runs: Path) -> None:
    listed = list_runs([])
    assert [entry.path.name for entry in listed if entry.run] == ["a", "b"]
    (broken,) = [entry for entry in listed if entry.run is None]
    assert broken.path.name == "broken"
    assert broken.error
    assert [entry.path.name for entry in list_runs([str(runs / "b")])] == ["b"]


def test_a_directory_that_is_not_there_is_a_mistake_but_for_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list_runs([]) == []
    with pytest.raises(RunError, match="There is no directory nowhere"):
        list_runs(["nowhere"])


@pytest.mark.usefixtures("runs")
def test_the_newest_run_is_meant_where_none_is_named() -> None:
    assert find_run(None).name == find_run("latest").name == "b"
    assert str(find_run("memwatch-runs/a/run.json")) == "memwatch-runs/a"


def test_without_any_run_one_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="There is no run below memwatch-runs"):
        find_run(None)

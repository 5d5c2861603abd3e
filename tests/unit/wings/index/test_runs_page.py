"""The page of many runs: its data, links, what it leaves out of very many runs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from click.testing import CliRunner

from otel_memwatch.wings.index import command, runs_page
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def data(page: str) -> dict[str, object]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_the_page_has_the_figures_and_links_of_the_runs(tmp_path: Path) -> None:
    for name in "ab":
        recorded.short(tmp_path / "runs" / name)
    (tmp_path / "runs/a/report.html").write_text("")
    file = tmp_path / "pages" / "all.html"
    file.parent.mkdir()
    done = CliRunner().invoke(command.command, ["list", "--page", str(file), str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    found = data(file.read_text())
    assert found["count"] == 2
    assert sorted(found["runs"]["link"]) == ["", "./../runs/a/report.html"]  # type: ignore[index]
    listed = CliRunner().invoke(command.command, ["list", "--json", str(tmp_path / "runs")])
    peaks = [row["peaks"]["tree"]["bytes"] for row in json.loads(listed.stdout)]
    memory = next(one for one in found["figures"] if one["name"] == "memory")  # type: ignore[attr-defined]
    assert memory["values"] == peaks


def test_of_very_many_runs_extremes_and_failures_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_page, "_MOST", 400)
    rows = [
        IndexedRun(f"run {i}", str(i), "finished", name="job", memory=1000 + i % 7, started=float(i))
        for i in range(4000)
    ]
    rows[1234] = rows[1234]._replace(memory=9000)
    rows[2345] = rows[2345]._replace(memory=10)
    rows[3456] = rows[3456]._replace(oom_kills=1)
    kept = runs_page.thinned(rows, None)
    assert len(kept) <= 500
    assert {rows[i] for i in (0, 1234, 2345, 3456, 3999)} <= set(kept)
    assert "left out" in runs_page.html(rows, None, "page.html").decode()


def test_without_names_commands_are_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_page, "_GROUPS", 2)
    rows = [
        IndexedRun(
            f"run {i}",
            str(i),
            "finished",
            command_json=f'["program", "{i % 3}"]',
            memory=1000 + i % 3,
            started=float(i),
        )
        for i in range(6)
    ]
    page = runs_page.html(rows, None, "page.html").decode()
    assert "Groups (3)" in page
    assert "(none)" not in page
    assert "The 2 groups with the largest memory; 1 left out." in page
    table = page[page.index("Groups (3)") : page.index("Changes (")]
    assert ["program 2" in table, "program 1" in table, "program 0" in table] == [True, True, False]


def test_a_page_excludes_other_formats(tmp_path: Path) -> None:
    recorded.short(tmp_path / "a")
    done = CliRunner().invoke(command.command, ["list", "--page", "x", "--json", str(tmp_path)])
    assert "--page excludes" in str(done.exception)

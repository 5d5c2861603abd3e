"""`runs`: fields of its options, and runs that change while they are listed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.index import command
from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("damage", [False, True])
def test_a_run_that_changes_between_listing_and_reading_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, damage: bool
) -> None:
    for name in "ab":
        recorded.short(tmp_path / name)
    listed = command.index

    def listed_before(*words: object, **options: object) -> object:
        found = listed(*words, **options)  # type: ignore[arg-type]
        if damage:
            (tmp_path / "a/run.json").write_text("{")
        else:
            shutil.rmtree(tmp_path / "a")
        return found

    monkeypatch.setattr(command, "index", listed_before)
    done = CliRunner().invoke(command.command, ["list", "--json", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = {row["id"]: row for row in json.loads(done.stdout)}
    assert rows["b"]["state"] == "finished"
    if damage:
        assert rows["a"]["state"] == "broken"
        assert "damaged" in rows["a"]["error"]
    else:
        assert list(rows) == ["b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sort", "name,memory"], "--sort takes one field, not 'name,memory'."),
        (["--sort", "-nonsense"], "--sort: there is no field 'nonsense'."),
        (["--columns", "name,nonsense"], "--columns: there is no field 'nonsense'."),
        (["--group", ","], "--group: there is no field nothing."),
    ],
)
def test_an_unknown_field_is_named(tmp_path: Path, words: list[str], said: str) -> None:
    recorded.short(tmp_path / "a")
    done = CliRunner().invoke(command.command, ["list", *words, str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert done.exception.message == said

"""`otel-memwatch metrics`, and the table in the manual that comes from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from otel_memwatch.catalog import METRICS

COMMAND = [sys.executable, "-m", "otel_memwatch", "metrics"]
PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def _run(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_every_metric_is_reported_in_every_form():
    plain, markdown = _run().stdout, _run("--markdown").stdout
    listed = {row["name"]: row for row in json.loads(_run("--json").stdout)}
    assert set(listed) == set(METRICS)
    for name, row in METRICS.items():
        assert f"\n{name}" in f"\n{plain}"
        assert f"| `{name}` |" in markdown
        assert listed[name]["unit"] == row.unit
    assert len(markdown.splitlines()) == len(METRICS) + 2
    assert len({line.count(" | ") for line in markdown.splitlines()}) == 1


def test_a_document_is_checked_and_brought_up_to_date(tmp_path):
    document = tmp_path / "x.md"
    document.write_text("before\n<!-- metrics:begin -->\nold\n<!-- metrics:end -->\nafter\n")
    stale = _run("--check", document)
    assert stale.returncode == 1
    assert "is out of date (otel-memwatch metrics --update" in stale.stderr
    assert _run("--update", document).returncode == 0
    assert _run("--check", document).returncode == 0
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    document.write_text("no place")
    assert "has no place for the table" in _run("--check", document).stderr
    assert "cannot be read" in _run("--check", tmp_path / "none").stderr


def test_the_manual_has_this_versions_table():
    checked = _run("--check", PAGE)
    assert checked.returncode == 0, checked.stderr

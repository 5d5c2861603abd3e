"""Summary lines about earlier runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from otel_memwatch.record.reader import Record
from otel_memwatch.wings.advice.history import earlier_runs
from otel_memwatch.wings.index.run_row import row_of
from tests.support import recorded


def test_runs_that_did_not_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell waits: a record of days whose monitor was killed would be replayed at the end of every later run."""
    for name in ("1", "2", "killed", "running", "now"):
        file = recorded.short(tmp_path / name) / "run.json"
        info = json.loads(file.read_text())
        info["peaks"] = {}
        if name in {"killed", "running"}:
            info |= {"state": "running", "peaks": None}
        if name == "running":
            info["monitor"]["pid"] = os.getpid()
        file.write_text(json.dumps(info))
    now = row_of(str(tmp_path / "now"))

    def read(*_: object) -> None:
        pytest.fail("samples are read")

    monkeypatch.setattr(Record, "samples", read)
    monkeypatch.setattr("otel_memwatch.wings.index.progress.progress", read)
    assert {row.id for row in earlier_runs(now)} == {"1", "2"}

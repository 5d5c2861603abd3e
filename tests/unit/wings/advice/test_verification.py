"""Runs that test an advice."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.runtime import own_python
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.verification import verify
from tests.unit.wings.advice.test_advice import row

if TYPE_CHECKING:
    import pytest

FINISHED = """{
  "version": 1, "id": "a", "state": "finished", "started": {"monotonic": 1}, "ended": {"monotonic": 3}, "exit": {"code": 0}
}"""


def test_it_runs_in_a_python_like_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolated if this one is; and a click.py beside the command replaces no module of ours."""
    started: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        started.append(argv)
        (out,) = [word for word in argv if word.startswith("--out=")]
        folder = Path(out[len("--out=") :])
        folder.mkdir()
        (folder / RUN_FILE).write_text(FINISHED)
        return subprocess.CompletedProcess(argv, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(own_python, "interpreter", lambda: ["python", "-I"])
    tried = row(mode="wrap", command_json='["train.py", "--fast"]')
    (advice,) = advise([tried], by=job_of)
    lines = list(verify(advice, tried))
    assert [argv[:3] for argv in started] == [["python", "-I", "-c"]] * 2
    assert [argv[-3:] for argv in started] == [["--", "train.py", "--fast"]] * 2
    assert [line.split(": ")[1] for line in lines[1:]] == ["passes in 2.00 s (usually 1 min 30 s)"] * 2

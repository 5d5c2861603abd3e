"""Every exit code that the manual states for a command is what that command gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.wrapped import environment, wrap

PAGE = (ROOT / "docs/reference/exit-codes.md").read_text()
TOLD = re.findall(r"`(otel-memwatch [^`]+)` gives (\d+)", PAGE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codes")
    (folder / "notes.txt").write_text("no program\n")
    assert wrap([sys.executable, "-c", "pass"], "--quiet", out=folder / "runs/a").code == 0
    return folder


@pytest.mark.parametrize(("command", "code"), TOLD, ids=[command for command, _ in TOLD])
def test_a_command_gives_its_code(place: Path, command: str, code: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit $?"],
        cwd=place,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == int(code), done.stderr


def test_there_are_enough_of_them() -> None:
    assert len(TOLD) >= 8

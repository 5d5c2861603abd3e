"""Where Python lacks what every other system has: one sentence, and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.programs import ROOT, environment

AS_ON_WINDOWS = """
import sys
sys.platform = "win32"
for absent in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[absent] = None
from otel_memwatch.cli import main
main()
"""


@pytest.mark.parametrize("arguments", [[], ["wrap", "--", "true"], ["report"], ["doctor"]])
def test_windows_is_reported_in_one_sentence(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "Linux and macOS" in line

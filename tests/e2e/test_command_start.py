"""What the command has to wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path


def test_click_is_not_loaded_before_the_command_runs(tmp_path: Path) -> None:
    """Nor is anything else that a start need not wait for. An unknown variable of ours would load what finds a similar name."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_MEMWATCH_")}
    program = str(PROGRAMS / "wrap_start.py")
    done = subprocess.run(
        [sys.executable, "-S", program, "wrap", "--out", str(tmp_path / "run"), "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]", done.stderr

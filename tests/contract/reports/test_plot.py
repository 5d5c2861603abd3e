"""Drawing leaves the program's own matplotlib alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path


def test_pyplot_is_not_touched(tmp_path: Path) -> None:
    recorded.short(tmp_path / "run")
    program = textwrap.dedent("""
        import sys
        from otel_memwatch.analysis import load
        from otel_memwatch.reports import write
        write("plot", load(sys.argv[1]), sys.argv[2])
        assert "matplotlib.pyplot" not in sys.modules
    """)
    environment = os.environ | {"MPLBACKEND": "agg", "DISPLAY": ""}
    done = subprocess.run(
        # an old matplotlib calls what a newer pyparsing has deprecated
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, tmp_path / "run", tmp_path / "x.png"],
        capture_output=True, text=True, env=environment, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")

"""A run directory that others have written to does not harm the program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def _targets(tmp_path: Path) -> Path:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    return precious


def test_a_program_is_not_harmed_by_what_lies_in_its_run_directory(tmp_path: Path) -> None:
    """Its pid cannot be known before: every file that it may want is a link."""
    precious = _targets(tmp_path)
    program = f"""
        import os
        os.symlink({str(precious)!r}, os.path.join({str(tmp_path)!r}, f"operations-{{os.getpid()}}.jsonl"))
        os.mkfifo(os.path.join({str(tmp_path)!r}, "run.json"))
        from otel_memwatch import operation
        with operation("x"):
            print("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OTEL_MEMWATCH_RUN_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("\n") == 1
    assert precious.read_text() == "mine\n"

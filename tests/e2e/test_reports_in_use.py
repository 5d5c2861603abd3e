"""Reports in processes of their own: what they load and cost, and what a shell makes of what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.reports.summary import _shell_path
from tests.support import recorded
from tests.support.programs import PROGRAMS, environment, run, run_file


def test_csv_of_a_long_run_is_written_as_it_is_read(tmp_path: Path) -> None:
    """Its peak memory does not grow with the number of ticks."""
    recorded.day(tmp_path / "few", ticks=5_000)
    recorded.day(tmp_path / "many", ticks=60_000)
    few, many = (
        int(run_file(PROGRAMS / "csv_memory.py", tmp_path, str(tmp_path / name))) for name in ("few", "many")
    )
    assert many - few < 4096, "KiB; 60 000 rows of 7 numbers held at once take 20 MiB"


def test_pyplot_is_not_touched(tmp_path: Path) -> None:
    recorded.short(tmp_path / "run")
    # an old matplotlib calls what a newer pyparsing has deprecated
    python = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning"]
    program = str(PROGRAMS / "plot_without_pyplot.py")
    done = run([*python, program, "run", "x.png"], tmp_path, env=environment(MPLBACKEND="agg", DISPLAY=""))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", [b"run", b"two words", b"it's", b"caf\xe9'\\9", "\u00e9t\u00e9".encode(), b"line\nbreak"]
)
def test_the_path_in_the_summary_can_be_pasted_into_a_shell(name: bytes, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    typed = _shell_path(path)
    typed.encode()
    echoed = subprocess.run(["bash", "-c", f"printf %s {typed}"], capture_output=True, check=True).stdout
    assert echoed == os.fsencode(path)

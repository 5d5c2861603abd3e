"""`otel-memwatch tradeoff`, and drawing in a program of one's own."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import PROGRAMS, ROOT, run, run_file

SAMPLE = ROOT / "tests" / "data" / "phi3_asym.csv"
GOLDEN = ROOT / "tests" / "golden" / "phi3_asym.md"


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "otel_memwatch", "tradeoff", *map(str, arguments)], cwd)


@pytest.mark.parametrize(
    ("first", "second"), [("--input-file", "--output-dir"), ("--input_file", "--output_dir"), ("-i", "-o")]
)
def test_all_spellings_of_the_command_line(tmp_path: Path, first: str, second: str) -> None:
    done = command(first, SAMPLE, second, tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "phi3_asym.md").read_text() == GOLDEN.read_text()


def test_the_command_line_shows_mistakes_in_one_line(tmp_path: Path) -> None:
    rows = list(csv.reader(SAMPLE.read_text().splitlines()))
    rows[5][rows[0].index("%int4")] = "40"
    wrong = tmp_path / "wrong.csv"
    with wrong.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    for arguments in (["no.csv"], [wrong], [SAMPLE, "-i", SAMPLE], ["--footprint", "peak", SAMPLE]):
        done = command(*arguments, "--output-dir", tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("otel-memwatch: ")


def test_drawing_leaves_the_program_s_own_settings_alone(tmp_path: Path) -> None:
    run_file(PROGRAMS / "compat" / "tradeoff_figure.py", tmp_path, str(SAMPLE))

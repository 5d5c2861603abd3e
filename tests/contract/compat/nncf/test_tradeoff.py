"""The command line of the trade-off plot, and the program that it draws in."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[3] / "data" / "phi3_asym.csv"
GOLDEN = Path(__file__).parents[3] / "golden" / "phi3_asym.md"


def test_drawing_leaves_the_program_s_own_settings_alone() -> None:
    code = (
        "import matplotlib, sys; before = dict(matplotlib.rcParams);"
        "from otel_memwatch.compat.nncf.tradeoff import figure, read;"
        f"figure(read({str(SAMPLE)!r}));"
        "assert dict(matplotlib.rcParams) == before;"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "otel_memwatch", "tradeoff", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    return subprocess.run(
        line, capture_output=True, text=True, timeout=60, cwd=cwd, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("first", "second"), [("--input-file", "--output-dir"), ("--input_file", "--output_dir"), ("-i", "-o")]
)
def test_all_spellings_of_the_command_line(tmp_path: Path, first: str, second: str) -> None:
    done = command(first, SAMPLE, second, tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "phi3_asym.md").read_text() == GOLDEN.read_text()


def test_the_command_line_tells_mistakes_in_one_line(tmp_path: Path) -> None:
    with SAMPLE.open(newline="") as file:
        table = list(csv.DictReader(file))
    table[3]["%int4"] = "40"
    wrong = tmp_path / "results.csv"
    with wrong.open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    for arguments in (
        ["no.csv"],
        [wrong],
        [SAMPLE, "-i", SAMPLE],
        ["--footprint", "peak", SAMPLE],
    ):
        done = command(*arguments, "--output-dir", tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("otel-memwatch: ")

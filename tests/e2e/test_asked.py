"""Requests, predictions and unused resources, as a user sees them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.support.wrapped import call

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "x = bytearray(40 << 20)"]
SLURM = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_ON_NODE": "8"}


def test_what_was_asked_is_compared_with_what_was_used(tmp_path: Path) -> None:
    first = call("wrap", "--out", "a", "--predicted", "memory=100MiB", "--", *PROGRAM, cwd=tmp_path, **SLURM)
    assert " of 4.00 GiB" in first.stderr
    assert "(Slurm request)" in first.stderr
    assert "predicted" in first.stderr
    assert "times the prediction" in first.stderr
    call("wrap", "--out", "b", "--", *PROGRAM, cwd=tmp_path)
    document = json.loads(call("report", "a", "--json", cwd=tmp_path).stdout)
    assert document["asked"] | {"by": "Slurm", "memory": 4 << 30, "cores": 8} == document["asked"]
    found = document["predicted"]["memory"]
    assert found["predicted"] == 100 << 20
    assert found["measured"] / found["predicted"] == found["ratio"] or 0 < found["ratio"] < 1
    wasted = call("runs", ".", "--wasted", cwd=tmp_path).stdout
    assert "unused_gib_hours" in wasted
    assert wasted.splitlines()[1].startswith("./a ")
    assert wasted.splitlines()[-1].startswith("1 run left ")
    none = call("runs", "b", "--wasted", cwd=tmp_path)
    assert (none.stdout, none.returncode) == ("", 0)
    assert "No run has a known request" in none.stderr
    compared = call("compare", "a", "b", cwd=tmp_path).stdout
    assert "base: " in compared
    assert "(a); 0." in compared
    assert "times the predicted memory" in compared
    other = call("wrap", "--out", "c", "--", sys.executable, "-c", "x = bytearray(41 << 20)", cwd=tmp_path)
    assert other.returncode == 0
    assert "The commands differ." in call("compare", "a", "c", cwd=tmp_path).stdout


def test_a_prediction_of_no_figure_is_a_user_error(tmp_path: Path) -> None:
    for text in ("memory=+5%", "stalled=5%", "memory", "nothing=5", "memory=0"):
        found = call("wrap", "--predicted", text, "--", "true", cwd=tmp_path)
        assert found.returncode == 2, text
        assert "--predicted" in found.stderr
        assert "Traceback" not in found.stderr

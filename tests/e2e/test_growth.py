"""Repeats of an operation that keep memory, as a user sees them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.wrapped import call, rendered

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import mmap, os, sys, time
from otel_memwatch import operation
samples = os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "samples.jsonl")
def size():
    return os.path.getsize(samples) if os.path.exists(samples) else 0
def wait_for_samples():  # each step has some, however slow the machine is
    before, until = size(), time.monotonic() + 2
    while size() == before and time.monotonic() < until:
        time.sleep(0.01)
kept, file = [], open("model.bin", "rb")
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
def anonymous(step):
    kept.append(b"x" * (2 << 20))
def of_a_file(step):
    sum(mapped[at] for at in range(step * (2 << 20), (step + 1) * (2 << 20), 4096))
grow = {"anonymous": anonymous, "file": of_a_file}[sys.argv[1]]
with operation("Epoch"):
    for step in range(30):
        with operation(f"Step {step}"):
            grow(step)
        wait_for_samples()
"""


def _run(folder: Path, kind: str) -> tuple[str, list[dict[str, object]]]:
    (folder / "model.bin").write_bytes(b"x" * (60 << 20))
    (folder / "program.py").write_text(PROGRAM)
    options = ["--out", "run", "--interval", "20ms", "--textfile", str(folder / "run.prom")]
    # The kernel's counters of many processors may be off by more than this program keeps.
    done = call(
        "wrap", *options, "--", sys.executable, "program.py", kind, cwd=folder, MEMWATCH_TEST_PROCESSORS="2"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(call("report", "run", "--json", cwd=folder).stdout)
    return done.stderr, document["findings"]


def test_steps_that_keep_memory_are_a_leak(tmp_path: Path) -> None:
    summary, found = _run(tmp_path, "anonymous")
    assert "leak          Step keeps 2.0 MiB per repeat, " in summary
    (leak,) = (one for one in found if one["kind"] == "leak")
    assert (leak["operation"], leak["inside"]) == ("Step", True)
    rate, seconds, repeats = leak["rate"], leak["seconds"], leak["repeats"]
    assert isinstance(rate, float)
    assert isinstance(seconds, float)
    assert isinstance(repeats, int)
    assert 1.9 * 2**20 < rate * seconds / repeats < 2.1 * 2**20
    assert str(leak["text"]) in " ".join(call("report", "run", cwd=tmp_path).stdout.split())
    exported = (tmp_path / "run.prom").read_text().splitlines()
    (series,) = (line for line in exported if line.startswith("memwatch_run_leak"))
    assert 'memwatch_operation_name="Step"' in series
    assert float(series.split()[-1]) == pytest.approx(rate, rel=0.01)
    assert "memwatch_run_leak" in call("export", "run", "--to", "openmetrics", cwd=tmp_path).stdout
    assert "Step keeps 2.0 MiB per repeat" in call("live", "run", "--once", cwd=tmp_path).stdout
    assert "Leak: Step keeps 2.0 MiB per repeat" in rendered(tmp_path / "run", "report.html").read_text()


def test_pages_of_a_mapped_file_are_no_leak(tmp_path: Path) -> None:
    summary, found = _run(tmp_path, "file")
    assert "leak" not in summary
    assert all(one["kind"] != "leak" for one in found)

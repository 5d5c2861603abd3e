"""A run that is short of memory, as a user sees it. Needs the memory controller."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

from tests.support.control_group import memory_parent
from tests.support.wrapped import call

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import mmap, os, random, time
from otel_memwatch import operation
file = open("big", "rb")
os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
def read(times, size):
    return sum(mapped[int(random.random() * size)] for _ in range(times))
with operation("Small"):
    read(300_000, 8 << 20)
with operation("Whole"):
    until = time.monotonic() + 2  # a shorter run may end before its files are looked at
    while time.monotonic() < until:
        sum(mapped[at] for at in range(0, len(mapped), 4096))
"""


def test_the_operation_that_reads_files_again_is_named(tmp_path: Path) -> None:
    memory_parent()
    with (tmp_path / "big").open("wb") as file:
        for _ in range(160):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be dropped
    options = ["--limit", "90MiB", "--out", "run", "--textfile", str(tmp_path / "run.prom")]
    done = call("wrap", *options, "--", sys.executable, "-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "slow " in done.stderr
    assert "short of" in done.stderr
    document = json.loads(call("report", "run", "--json", cwd=tmp_path).stdout)
    shares = {one["name"]: one["stalled"]["memory"] for one in document["operations"]}
    assert shares["Whole"] > 0.1
    assert shares["Small"] < shares["Whole"]
    exported = {
        line.split("{")[0]: float(line.split()[-1])
        for line in (tmp_path / "run.prom").read_text().splitlines()
        if 'memwatch_pressure_resource="memory"' in line and line.startswith("memwatch_run_stalled")
    }
    assert list(exported.values()) == [document["stalled"]["memory"]], (
        "as in the report, not of a second before"
    )
    ((series, share),) = exported.items()
    line = f'{series}{{memwatch_pressure_resource="memory"}} {share}\n'
    assert line in call("report", "run", "--format", "metrics", cwd=tmp_path).stdout
    assert "of it short of memory" in call("report", "run", cwd=tmp_path).stdout
    largest = document["files"]["largest"][0]
    assert (largest["path"], largest["bytes"]) == (str(tmp_path / "big"), 160 << 20)
    assert "160.0 MiB mapped from big" in done.stderr
    page = (tmp_path / "run/report.html").read_text()
    assert "Slow: " in page
    assert "fill-opacity" in page


def test_a_copy_repeated_at_a_small_limit_is_not_slow(tmp_path: Path) -> None:
    """The kernel counts pages that the copy before dropped as refaults."""
    memory_parent()
    with (tmp_path / "big").open("wb") as file:
        for _ in range(128):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(3):
        done = call("wrap", "--limit", "32MiB", "--out", "run", "--", "cp", "big", "copy", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        # On a busy disk, writes of other programs may leave an upper bound ("perhaps short of memory"), and pages that were
        # read ahead are dropped before their use: then the copy does read parts of the file again.
        if "short of" in done.stderr.replace("perhaps short of", ""):
            document = json.loads(call("report", "run", "--json", cwd=tmp_path).stdout)
            assert document["stalls"]["reread_bytes"] <= document["totals"]["read_bytes"] - (128 << 20)
        shutil.rmtree(tmp_path / "run")

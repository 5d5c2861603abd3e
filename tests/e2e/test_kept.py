"""Memory that an allocator keeps, as a user sees it: heaps of the bench, and the surfaces of the verdict."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations import native
from tests.bench.heaps import PRELOADED, is_installed, judge
from tests.support.marked import ROOT
from tests.support.wrapped import call, environment, rendered

pytestmark = pytest.mark.skipif(
    not native.COMPILED or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs compiled code and glibc 2.33",
)

PATHS = os.pathsep.join([str(ROOT), str(Path(__file__).parents[2])])
"""The installed package, then this checkout with `tests`."""

PROGRAM = """
import os, random, sys
from otel_memwatch import operation, watch
from tests.bench.heaps import ALL, Blocks
def build():
    blocks = Blocks("glibc")
    blocks.fill(ALL, lambda: 4096)
    blocks.free(lambda index: index % 200 != 0)
    return blocks
if sys.argv[1] == "watch":
    with watch("run"):
        kept = build()
else:
    with operation("Build"):
        kept = build()
    if os.fork() == 0:
        with operation("Child"):
            pass
        os._exit(0)
    os.wait()
"""


def _readings(run: Path) -> list[str]:
    return [
        text
        for file in run.glob("operations-*.jsonl")
        for text in file.read_text().splitlines()
        if '"heap"' in text
    ]


def test_the_verdict_is_everywhere(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["--out", "run", "--textfile", str(tmp_path / "run.prom")]
    done = call("wrap", *options, "--", sys.executable, "program.py", "wrap", cwd=tmp_path, PYTHONPATH=PATHS)
    assert done.returncode == 0, done.stderr
    assert " is free memory of glibc: malloc_trim(0) or jemalloc" in done.stderr
    document = json.loads(call("report", "run", "--json", cwd=tmp_path).stdout)
    (kept,) = (one for one in document["findings"] if one["allocator"])
    (heap,) = document["heaps"]
    assert kept["kind"] == "kept"
    assert kept["bytes"] == heap["allocators"]["glibc"]["resident"]
    assert kept["bytes"] == pytest.approx(199 << 20, rel=0.05)
    report = call("report", "run", cwd=tmp_path).stdout
    assert "Anonymous memory\n" in report
    for surface in (report, call("live", "run", "--once", cwd=tmp_path).stdout):
        assert "is free memory of glibc" in " ".join(surface.split())
    assert "is free memory of glibc" in rendered(tmp_path / "run", "report.html").read_text()
    for exported in (
        (tmp_path / "run.prom").read_text(),
        call("export", "run", "--to", "openmetrics", cwd=tmp_path).stdout,
    ):
        assert 'memwatch_allocator="glibc"' in exported
    assert len(_readings(tmp_path / "run")) == 1  # none of the forked child


def test_watch_reads_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = [sys.executable, "program.py", "watch"]
    subprocess.run(program, cwd=tmp_path, check=True, env=environment(PYTHONPATH=PATHS))
    assert "is free memory of glibc" in " ".join(call("report", "run", cwd=tmp_path).stdout.split())
    assert len(_readings(tmp_path / "run")) == 1


@pytest.mark.parametrize("allocator", [name for name in PRELOADED if name != "glibc"])
@pytest.mark.parametrize("shape", ["all but each 200th freed", "all in use"])
def test_kept_is_not_live(tmp_path: Path, allocator: str, shape: str) -> None:
    if not is_installed(allocator):
        pytest.skip(f"{PRELOADED[allocator]} is not installed")
    found = judge(allocator, shape, tmp_path)
    assert found.is_kept == (shape != "all in use")
    assert found.right

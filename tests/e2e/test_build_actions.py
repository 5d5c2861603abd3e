"""`report --by output` after a real `make`: what each action needed by what it made, and the -j that fits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wrapped import MIB, PROGRAM, environment, wrap

COMPILER = """
import sys
held = bytearray(int(sys.argv[3]) << 20)
open("made-" + sys.argv[2], "w").close()
ready = sys.argv[2] + ".ready"
open(ready, "w").close()
import os, time
while not os.path.exists("samples-seen"):
    time.sleep(0.01)
open(sys.argv[2], "w").close()
"""
MAKEFILE = """
all: a.o b.o c.o
a.o: ; PYTHON -S compiler.py -o $@ 60
b.o: ; PYTHON -S compiler.py -o $@ 120
c.o: ; PYTHON -S compiler.py -o $@ 30
"""
WATCHER = """
import os, pathlib, sys, time
# All three hold their memory; then two more ticks, so that each was looked at.
while not all(os.path.exists(name + ".ready") for name in ("a.o", "b.o", "c.o")):
    time.sleep(0.01)
samples = pathlib.Path(os.environ["OTEL_MEMWATCH_RUN_DIR"], "samples.jsonl")
def ticks():
    return len(samples.read_bytes().splitlines()) if samples.exists() else 0
before = ticks()
while ticks() < before + 3:
    time.sleep(0.02)
open("samples-seen", "w").close()
"""


def report(place: Path, *options: str) -> str:
    done = subprocess.run(
        [*PROGRAM, "report", "run", "--by", "output", *options],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_actions_of_make_by_their_outputs(tmp_path: Path) -> None:
    (tmp_path / "compiler.py").write_text(COMPILER)
    (tmp_path / "watcher.py").write_text(WATCHER)
    (tmp_path / "Makefile").write_text(MAKEFILE.replace("PYTHON", sys.executable))
    script = f"{sys.executable} -S watcher.py & make -s -j3; code=$?; wait; exit $code"
    done = wrap(["sh", "-c", script], out=tmp_path / "run", cwd=tmp_path)
    assert done.code == 0, done.err

    found: dict[str, Any] = json.loads(report(tmp_path, "--json", "--within", "10GiB"))
    actions = found["actions"]
    assert [action["output"] for action in actions] == ["b.o", "a.o", "c.o"]
    bare = [action["peak"]["bytes"] / MIB - size for action, size in zip(actions, (120, 60, 30), strict=True)]
    assert max(bare) - min(bare) < 2, "what Python itself takes is the same in all"
    needed = [action["needed"] for action in actions]
    beside = found["parallelism"]["needed"] - sum(needed)
    two = beside + needed[0] + needed[1]
    for within, jobs in ((two // 1024, 2), (two // 1024 - 1, 1)):
        assert (
            json.loads(report(tmp_path, "--json", "--within", f"{within}KiB"))["parallelism"]["jobs"] == jobs
        )

    text = report(tmp_path, "--within", "10GiB")
    assert text.splitlines()[1].endswith("b.o")
    assert "memory does not limit -j" in text
    assert "Not even the largest action fits into 100.0 MiB" in report(tmp_path, "--within", "100MiB")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--within", "1GiB"], "goes with"),
        (["--by", "output", "--html", "x"], "goes with"),
        (["--by", "output", "--within", "much"], "--within"),
        (["--by", "input"], "output"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, options: list[str], expected: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "report", "run", *options],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_run_that_made_nothing_says_so(tmp_path: Path) -> None:
    wrap(["true"], out=tmp_path / "run", cwd=tmp_path)
    assert "there are no build actions" in report(tmp_path)


def test_a_build_by_a_server_elsewhere_says_so(tmp_path: Path) -> None:
    bazel = tmp_path / "bazel"
    bazel.write_text("#!/bin/sh\n:\n")
    bazel.chmod(0o755)
    wrap([bazel, "build"], out=tmp_path / "run", cwd=tmp_path)
    assert "are not part of this run" in report(tmp_path)


BUILD = """
[genrule(
    name = "made%d" % size,
    outs = ["made%d.o" % size],
    cmd = "PYTHON -S -c 'import sys, time; x = bytearray(%d << 20); open(sys.argv[2], \\"w\\").close(); time.sleep(1)' -o $@" % size,
) for size in (60, 120)]
"""


@pytest.mark.skipif(not os.environ.get("MEMWATCH_LONG"), reason="it takes a minute: sh tests/run.sh all")
@pytest.mark.timeout(600)
def test_actions_of_bazel_where_its_server_is_part_of_the_run(tmp_path: Path) -> None:
    """In one process, with a server that starts below the command, and with one that was there before."""
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "WORKSPACE").touch()
    (place / "BUILD").write_text(BUILD.replace("PYTHON", sys.executable))
    own = f"--output_user_root={tmp_path}/bazel-files"

    def bazel(*words: str) -> list[str]:
        return ["bazel", own, *words]

    def build(name: str, *options: str) -> str:
        subprocess.run(bazel("clean"), cwd=place, check=True, capture_output=True, timeout=200)
        if name != "before":
            subprocess.run(bazel("shutdown"), cwd=place, check=True, capture_output=True, timeout=200)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        done = wrap(bazel(*options, "build", "//..."), out=tmp_path / "run", cwd=place)
        assert done.code == 0, done.err
        return report(tmp_path, "--json")

    try:
        for name, options in (("batch", ["--batch"]), ("below", [])):
            actions = json.loads(build(name, *options))["actions"]
            assert [Path(action["output"]).name for action in actions] == ["made120.o", "made60.o"]
            for action, size in zip(actions, (120, 60), strict=True):
                assert size < action["peak"]["bytes"] / MIB < size + 20
        build("before")
        assert "are not part of this run" in report(tmp_path)
    finally:
        subprocess.run(bazel("shutdown"), cwd=place, capture_output=True, timeout=200)

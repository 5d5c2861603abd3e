"""`wrap --limit`: the whole tree is ended where it wants more, and the report names the largest process and its operation."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.control_group import group, memory_parent
from tests.support.torture import alive

MIB = 1 << 20
GROWS = """
import sys, time
from otel_memwatch import operation
with operation("Grow"):
    kept = []
    while True:
        kept.append(bytearray(b"x") * (4 << 20))
        time.sleep(0.03)  # so that a tick sees it large on a busy machine too
"""
LEAVES = f"""
import subprocess, sys
idle = "import time; x = bytearray(b'x') * (10 << 20); time.sleep(600)"
others = [subprocess.Popen([sys.executable, "-c", idle]) for _ in range(2)]
print(*(one.pid for one in others), flush=True)
subprocess.run([sys.executable, "-c", {GROWS!r}])
print("outlived it", flush=True)
others[0].wait()
"""


def wrap(tmp_path, program, *options, enter=None):
    command = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--no-plot",
        "--out=r",
        *options,
        "--",
        sys.executable,
        "-c",
        program,
    ]
    return subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, preexec_fn=enter
    )


def test_nothing_of_the_tree_outlives_a_breach_and_it_is_reported_who_wanted_more(tmp_path):
    memory_parent()
    done = wrap(tmp_path, LEAVES, "--limit=120MiB")
    assert done.returncode == -9, done.stderr
    others = [int(pid) for pid in done.stdout.split()[:2]]
    assert len(others) == 2
    assert not any(map(alive, others))
    assert "outlived it" not in done.stdout
    info = json.loads((tmp_path / "r" / "run.json").read_text())
    limit = info["limit"]
    assert (limit["bytes"], limit["by"], limit["breached"], limit["operation"]) == (
        120 * MIB,
        "control group",
        True,
        "Grow",
    )
    assert limit["largest"][0]["bytes"] > 40 * MIB
    assert limit["largest"][0]["pid"] not in others
    assert 100 * MIB < limit["peak"] <= 121.2 * MIB
    assert "killed at the 120.0 MiB limit, during Grow" in done.stderr
    report = subprocess.run(
        [sys.executable, "-m", "otel_memwatch", "report", "r", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert json.loads(report.stdout)["hard_limit"] == limit


STEPS = """
import time
from otel_memwatch import operation
kept = []
with operation("Train"):
    for step in range(20):
        with operation(f"step {step}"):
            kept.append(bytearray(b"x") * (24 << 20))
            time.sleep(0.15)
"""


def test_every_line_names_the_operation_that_was_open_at_the_kill(tmp_path):
    """It had 24 MiB less when it began, which is all that its lines show: the samples and the process's end show the rest."""
    memory_parent()
    done = wrap(tmp_path, STEPS, "--limit=190MiB")
    assert done.returncode == -9, done.stderr
    info = json.loads((tmp_path / "r" / "run.json").read_text())
    tree = info["peaks"]["tree"]
    assert info["limit"]["operation"].startswith("step ")
    assert (tree["operation"], tree.get("operations")) == (info["limit"]["operation"], None), done.stderr
    assert done.stderr.count("  limit  ") == 1


def test_a_kill_at_an_enclosing_limit_is_no_breach_of_ours(tmp_path):
    with group(limit=200 * MIB) as enclosing:
        done = wrap(tmp_path, GROWS, "--limit=600MiB", enter=enclosing.enter)
    assert done.returncode == -9, done.stderr
    info = json.loads((tmp_path / "r" / "run.json").read_text())
    assert (info["limit"]["breached"], info["exit"]["oom_kills"]) == (False, 1)
    assert "at the 600.0 MiB limit" not in done.stderr


def test_below_its_limit_nothing_happens(tmp_path):
    memory_parent()
    done = wrap(tmp_path, "x = bytearray(b'x') * (30 << 20)", "--limit=500MiB")
    assert done.returncode == 0
    limit = json.loads((tmp_path / "r" / "run.json").read_text())["limit"]
    assert (limit["breached"], limit["largest"], limit["operation"]) == (False, [], None)


def test_without_a_group_it_says_what_it_needs_and_starts_nothing(tmp_path):
    done = wrap(tmp_path, "open('started', 'w')", "--limit=1GiB", "--cgroup=off")
    assert done.returncode == 2
    assert "--limit-fallback rlimit" in done.stderr
    assert os.listdir(tmp_path) == []


def test_each_process_is_limited_where_requested(tmp_path):
    done = wrap(tmp_path, GROWS, "--limit=100MiB", "--cgroup=off", "--limit-fallback=rlimit")
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    limit = json.loads((tmp_path / "r" / "run.json").read_text())["limit"]
    assert (limit["by"], limit["breached"]) == ("process", None)


@pytest.mark.parametrize("limit", ["4", "4X", "-1GiB", "nanGiB", "0MiB"])
def test_what_is_no_size_is_refused(tmp_path, limit):
    done = wrap(tmp_path, "open('started', 'w')", f"--limit={limit}")
    assert (done.returncode, os.listdir(tmp_path)) == (2, [])


@pytest.mark.quiet
def test_the_verdict_exists_a_second_after_the_kill(tmp_path):
    memory_parent()
    program = GROWS.replace("kept.append", "open('last', 'w').close(); kept.append")
    done = wrap(tmp_path, program, "--limit=100MiB")
    assert done.returncode == -9
    told = (tmp_path / "r" / "run.json").stat().st_mtime
    assert told - (tmp_path / "last").stat().st_mtime <= 1.0

"""Without a control group of the run's own, the group that it is in with others bounds what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.run import Peaks, load
from tests.support.control_group import Group
from tests.support.wrapped import PROGRAM, environment

MIB = 1 << 20
LIMIT = 200 * MIB
SHORT = "x = bytearray(50 << 20)"
IN_TURN = f"""
import subprocess, sys
for _ in range(20):
    subprocess.run([sys.executable, "-c", "{SHORT}"], check=True)
"""


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group(LIMIT)
    try:
        yield made
    finally:
        made.remove()


def wrapped(group: Group, program: str, out: Path, *options: str) -> Peaks:
    argv = [*PROGRAM, "wrap", "--cgroup", "off", "--no-plot", *options, "--out", str(out), "--"]
    subprocess.run(
        [*argv, sys.executable, "-c", program],
        check=True,
        timeout=120,
        preexec_fn=group.enter,
        env=environment(),
        capture_output=True,
    )
    return load(out).peaks


def test_many_programs_in_turn_never_need_more_than_the_limit(group: Group, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # Several programs between two ticks: else page faults may bound the tree more closely. The last one a tick sees.
    last = f"""
subprocess.run([sys.executable, "-c", "import time; {SHORT}; time.sleep(1.2)"], check=True)
"""
    tree = wrapped(group, IN_TURN + last, run, "--interval", "0.5").tree
    assert tree is not None
    assert tree.low is not None
    assert tree.high is not None
    assert 50 * MIB <= tree.low < tree.high <= LIMIT + 8 * MIB
    assert "the cgroup's" in tree.how
    # a record whose figures were not written reports the same
    info = json.loads((run / "run.json").read_text())
    del info["peaks"]
    (run / "run.json").write_text(json.dumps(info))
    again = load(run).peaks.tree
    assert again is not None
    assert again._replace(at=None, low_at=None) == tree._replace(at=None)  # run.json has no low_at
    assert again.at == pytest.approx(tree.at, abs=0.001)  # the record rounds the moments of ticks


def test_a_process_that_leaves_the_group_takes_the_bound_away(group: Group, tmp_path: Path) -> None:
    elsewhere = Group(None)
    try:
        leave = f"""
import subprocess, sys, time
def leave():
    open("{elsewhere.path}/cgroup.procs", "w").write("0")
child = "import time; x = bytearray(300 << 20); time.sleep(0.7)"
subprocess.run([sys.executable, "-c", child], preexec_fn=leave, check=True)
"""
        tree = wrapped(group, leave + IN_TURN, tmp_path / "run").tree
    finally:
        elsewhere.remove()
    assert tree is not None
    assert "the cgroup's" not in tree.how
    assert tree.high is None or tree.high > 300 * MIB

"""A real cwltool that finds the recording name of a tool first on PATH: its figure is exact, its output is cwltool's own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import counters
from tests.support.wrapped import MIB, PROGRAM, environment

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cwltool") is None, reason="cwltool is not installed: sh tests/run.sh all"
)

TOOL = """
cwlVersion: v1.2
class: CommandLineTool
baseCommand: [python3, -S, -c]
arguments: ["x = bytearray(120 << 20); print('made')"]
inputs: []
outputs:
  out: stdout
stdout: out.txt
"""


def test_a_tool_is_recorded_without_an_edit(tmp_path: Path) -> None:
    (tmp_path / "tool.cwl").write_text(TOOL)
    subprocess.run(
        [*PROGRAM, "shell", "--install", "shells", "--name", "python3", "--runs", "runs"],
        cwd=tmp_path, env=environment(), check=True, timeout=60,
    )  # fmt: skip
    made = {}
    for name, path in (("plain", ""), ("recorded", f"{tmp_path}/shells:")):
        variables = environment()
        variables["PATH"] = path + variables["PATH"]
        done = subprocess.run(
            [sys.executable, "-m", "cwltool", "--outdir", name, "tool.cwl"],
            cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made[name] = json.loads(done.stdout)["out"]["checksum"]
    assert made["plain"] == made["recorded"]
    (run,) = (json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/run.json"))
    tree = run["peaks"]["tree"]
    assert tree["certainty"] in counters.of_group(tree["bytes"], doubt=MIB // 4)
    assert 120 * MIB < tree["bytes"] < 130 * MIB

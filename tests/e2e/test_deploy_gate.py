"""The gates of deploy/ at work, as GitHub's and GitLab's runners run them, from the baseline of main to a refused change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml

from tests.bench.gate.repository import PLANTED, gate_repository

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "deploy" / "gitlab" / "memwatch-gate.gitlab-ci.yml"


def test_the_action_refuses_the_change_that_needs_more_and_no_other(tmp_path):
    buffer = list(PLANTED)[1]
    outcomes = gate_repository(tmp_path, ["harmless", buffer], runs=1)
    assert [one.refused for one in outcomes] == [False, True], outcomes
    assert "::error title=otel-memwatch::process of operation Train regressed" in outcomes[1].output
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert "**regressed**" in Path(outputs["markdown"]).read_text()
    assert ET.parse(outputs["junit"]).getroot().get("failures") != "0"
    assert (tmp_path / "summary").read_text().count("### ") == 2


WORK = """\
import sys
import time
from otel_memwatch import operation
with operation("Work"):
    x = bytearray(b"x") * (int(sys.argv[1]) << 20)
time.sleep(0.8)
"""


def test_gitlabs_template_keeps_a_baseline_and_refuses_what_needs_more(tmp_path):
    job = yaml.safe_load(TEMPLATE.read_text())[".memwatch-gate"]
    lines = "\n".join(job["script"]).replace(
        "/tmp/otel-memwatch/bin/otel-memwatch", f'"{sys.executable}" -m otel_memwatch'
    )

    (tmp_path / "work.py").write_text(WORK)

    def run(number, rule, mebibytes):
        variables = {**job["variables"], **rule["variables"], "CI_JOB_ID": str(number), "MEMWATCH_RUNS": "1",
                     "PYTHONPATH": str(ROOT), "MEMWATCH_COMPARE_OPTIONS": "--figure operation-process:*",
                     "MEMWATCH_COMMAND": f"exec {sys.executable} work.py {mebibytes}"}  # fmt: skip
        # A runner's shell ends at the first line that fails.
        return subprocess.run(["sh", "-ec", lines], cwd=tmp_path, env={**os.environ, **variables}, capture_output=True,
                              text=True, timeout=60)  # fmt: skip

    request, main = job["rules"]
    first = run(1, request, 100)
    assert (first.returncode, "There is no baseline yet" in first.stdout) == (0, True), first.stderr
    assert run(2, main, 100).returncode == 0
    assert [str(path) for path in job["cache"]["paths"]] == [".memwatch-baseline.json"]
    assert (tmp_path / ".memwatch-baseline.json").exists()
    assert run(3, request, 100).returncode == 0
    more = run(4, request, 110)
    assert more.returncode == 1, more.stderr
    assert ET.parse(tmp_path / job["artifacts"]["reports"]["junit"]).getroot().get("failures") == "1"

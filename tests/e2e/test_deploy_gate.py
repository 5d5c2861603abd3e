"""The gates of deploy/ at work, as GitHub's and GitLab's runners run them, from the baseline of main to a refused change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml

from tests.bench.gate.repository import PLANTED, gate_repository

ROOT = Path(__file__).parents[2]
ACTIONS = ROOT / "deploy" / "github-actions"
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


class Runner:
    """A GitHub runner in a repository with the gate's example and a copy of the folder that it names."""

    def __init__(self, place):
        text = (ACTIONS / "gate" / "example.yml").read_text()
        folder, copy = re.search(r"copy (\S+) to (\S+) in your repository", text).groups()
        self.repository = place / "repository"
        self.action = self.repository / copy
        shutil.copytree(ROOT / folder, self.action)
        self.step = next(one for one in yaml.safe_load(text)["jobs"]["gate"]["steps"] if "with" in one)
        assert self.step["uses"] == f"./{copy}"
        programs = place / "programs"
        programs.mkdir()
        self.calls = place / "calls"
        self.write(programs / "gh", f'echo "gh $@" >>"{self.calls}"')
        venv = (
            'mkdir -p "$3/bin"',
            f"""printf '#!/bin/sh\\necho "pip $@" >>"{self.calls}"\\n' >"$3/bin/python" """,
            f"""printf '#!/bin/sh\\nexec "{sys.executable}" -m otel_memwatch "$@"\\n' >"$3/bin/otel-memwatch" """,
            'chmod 755 "$3/bin/"*',
        )
        self.write(programs / "python3", *venv)
        self.write(programs / "python", f'exec "{sys.executable}" "$@"')
        self.environment = {
            **os.environ, "RUNNER_TEMP": str(place / "temp"), "GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "a/b",
            "GITHUB_OUTPUT": str(place / "output"), "GITHUB_STEP_SUMMARY": str(place / "summary"),
            "GITHUB_ACTION_PATH": str(self.action), "PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}",
        }  # fmt: skip

    @staticmethod
    def write(path, *lines):
        path.write_text("\n".join(("#!/bin/sh", *lines, "")))
        path.chmod(0o755)

    def run(self, **inputs):
        """Run the scripts of the action's steps as far as they succeed; return the last one's result."""
        action = yaml.safe_load((self.action / "action.yml").read_text())
        given = (
            {name: one.get("default", "") for name, one in action["inputs"].items()}
            | self.step["with"]
            | inputs
        )
        values = {f"inputs.{name}": value for name, value in given.items()}
        values |= {
            "github.workspace": str(self.repository),
            "github.token": "t",
            "github.event.pull_request.number": "7",
        }
        for step in action["runs"]["steps"]:
            if "run" not in step or (step["name"] == "Comment" and given["save"] == "true"):
                continue
            output = Path(self.environment["GITHUB_OUTPUT"])
            outputs = (
                dict(line.split("=", 1) for line in output.read_text().splitlines())
                if output.exists()
                else {}
            )
            known = values | {f"steps.gate.outputs.{name}": value for name, value in outputs.items()}
            variables = {
                name: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: known[found[1]], text)  # noqa: B023 - used at once
                for name, text in step.get("env", {}).items()
            }
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.repository,
                env=self.environment | variables, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            if done.returncode:
                break
        return done


def test_a_copy_of_the_gate_works_as_its_example_says(tmp_path):
    runner = Runner(tmp_path)
    program = runner.repository / "benchmark.py"
    program.write_text(WORK.replace("int(sys.argv[1])", "100"))
    one_run = {"runs": "1", "compare-options": "--figure operation-process:*"}
    main = runner.run(save="true", **one_run)
    assert main.returncode == 0, main.stdout + main.stderr
    package = runner.step["with"]["package"]
    assert runner.calls.read_text() == f"pip -m pip install --quiet otel-memwatch[compare] @ {package}\n"
    assert (runner.repository / ".memwatch-baseline-benchmark.json").exists()
    same = runner.run(save="false", **one_run)
    assert same.returncode == 0, same.stdout + same.stderr
    comment = runner.calls.read_text().splitlines()[-1]
    assert comment.startswith("gh pr comment 7 --repo a/b ")
    assert Path(comment.split()[-1]).is_file()
    program.write_text(WORK.replace("int(sys.argv[1])", "115"))
    more = runner.run(save="false", **one_run)
    assert more.returncode == 1, more.stdout + more.stderr
    assert "::error title=otel-memwatch::" in more.stdout + more.stderr
    without = runner.run(save="false", package="")
    assert (without.returncode, without.stdout[:9]) == (2, "::error::")


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

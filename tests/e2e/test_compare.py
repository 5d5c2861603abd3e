"""`compare` on recorded runs of real programs: what it finds, what it leaves out, how it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from otel_memwatch import operation
with operation("Train"):
    data = bytearray(b"x") * (int(sys.argv[1]) << 20)
    time.sleep(0.8)  # ticks look who is at work
with operation(sys.argv[2]):
    pass
sys.exit(int(sys.argv[3]))
"""


def run(directory, *arguments, code=0, **variables):
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS")
    }
    done = subprocess.run(
        [sys.executable, "-m", "otel_memwatch", *arguments], cwd=directory, env={**kept, **variables}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    runs = {
        # Large enough for figures that are exact with four processors.
        "base": ("320", "Save", "0"),
        "same": ("320", "Save", "0"),
        "more": ("329", "Export", "0"),
        "failed": ("9", "x", "5"),
    }
    for name, (size, operation, code) in runs.items():
        command = [
            "wrap",
            "--quiet",
            "--no-plot",
            f"--out={name}",
            "--",
            sys.executable,
            "-c",
            PROGRAM,
            size,
            operation,
            code,
        ]
        run(directory, *command, code=int(code))
    return directory


def verdicts(done):
    return {one["figure"]: one["verdict"] for one in json.loads(done.stdout)["figures"]}


def test_two_percent_more_are_found_with_one_run_against_one(recorded):
    done = run(recorded, "compare", "base", "--", "more", "--format=json", code=1)
    found = verdicts(done)
    assert found["operation-process:Train"] == "regressed"
    assert found["operation:Save"] == found["operation:Export"] == "not comparable"
    assert found["seconds"] == "not enough runs"
    back = verdicts(run(recorded, "compare", "more", "--", "base", "--format=json"))
    assert back["operation-process:Train"] == "improved"


def test_the_same_program_is_the_same_and_a_failed_run_is_left_out(recorded):
    done = run(
        recorded,
        "compare",
        "base",
        "failed",
        "--",
        "same",
        "--figure=operation-process:Train",
        "--format=json",
        "--strict",
    )
    assert verdicts(done) == {"operation-process:Train": "same"}
    assert [one["name"] for one in json.loads(done.stdout)["left_out"]] == ["failed"]
    assert "skipped failed: run failed (exit code 5)" in done.stderr
    run(recorded, "compare", "base", "--", "same", "--strict", code=3)
    run(recorded, "compare", "base", "--", "same", "--figure=operation:*", "--require-operations")
    run(recorded, "compare", "base", "--", "more", "--figure=operation:*", "--effect=50%")
    run(
        recorded,
        "compare",
        "base",
        "--",
        "more",
        "--figure=operation:*",
        "--effect=50%",
        "--require-operations",
        code=1,
    )


def test_a_baseline_and_all_outputs_at_once(recorded, tmp_path):
    baseline = tmp_path / "baseline.json"
    run(recorded, "check", "base", "failed", "--save-baseline", str(baseline))
    assert "x" * 4 not in baseline.read_text()
    assert "argv" not in baseline.read_text()
    summary = tmp_path / "summary.md"
    also = [
        f"--also={form}={tmp_path / form}"
        for form in ("markdown", "junit", "bencher", "github-action-benchmark", "json")
    ]
    done = run(recorded, "compare", "--baseline", str(baseline), "more", *also, code=1, GITHUB_ACTIONS="true",
               GITHUB_STEP_SUMMARY=str(summary))  # fmt: skip
    assert "::error title=otel-memwatch::process of operation Train regressed" in done.stderr
    assert summary.read_text() == (tmp_path / "markdown").read_text()
    assert json.loads((tmp_path / "json").read_text())["regressed"] is True
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "baseline.json"], cwd=tmp_path, check=True)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, "commit", "-qm", "x"], cwd=tmp_path, check=True)
    of_commit = [
        "compare",
        "--baseline",
        "git:HEAD:baseline.json",
        str(recorded / "same"),
        "--figure=operation-process:Train",
        "--format=json",
    ]
    assert verdicts(run(tmp_path, *of_commit)) == {"operation-process:Train": "same"}
    run(tmp_path, "compare", "--baseline", "git:HEAD:none.json", str(recorded / "same"), code=2)


def test_a_damaged_record_and_a_failed_head_are_left_out_and_named(recorded, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(recorded / "same", damaged)
    processes = bytearray((damaged / "processes.jsonl").read_bytes())
    processes[5:25] = b"\0" * 20
    (damaged / "processes.jsonl").write_bytes(processes)
    done = run(
        recorded,
        "compare",
        "base",
        str(damaged),
        "--",
        "same",
        "--figure=operation-process:Train",
        "--format=json",
    )
    assert [one["name"] for one in json.loads(done.stdout)["left_out"]] == [str(damaged)]
    assert f"skipped {damaged}: " in done.stderr
    baseline = str(tmp_path / "baseline.json")
    saved = run(recorded, "check", "base", "--save-baseline", baseline)
    assert saved.stderr.endswith(f" to {baseline}\n")
    assert "saved the figures of " in saved.stderr
    assert (
        "run failed (exit code 5)"
        in run(recorded, "compare", "--baseline", baseline, "failed", code=2).stderr
    )


@pytest.mark.parametrize(
    "arguments",
    [["base"], ["base", "--"], ["--", "base"], ["--baseline", "none.json", "base"], ["absent", "--", "base"],
     ["base", "--", "absent"], ["base", "--", "same", "--effect=2"], ["base", "--", "same", "--effect=nan%"],
     ["base", "--", "same", "--figure=memroy"], ["base", "--", "same", "--also=html=x"], ["base", "--", "same", "--baseline=x"]],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_sentence(recorded, arguments):
    done = run(recorded, "compare", *arguments, code=2)
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_a_directory_of_runs_is_all_of_them(recorded, tmp_path):
    several = tmp_path / "several"
    several.mkdir()
    for name in ("base", "same"):
        (several / name).symlink_to(recorded / name)
    done = run(
        recorded,
        "compare",
        str(several),
        "--",
        str(Path("same")),
        "--figure=operation-process:Train",
        "--format=json",
    )
    assert json.loads(done.stdout)["base_runs"] == 2

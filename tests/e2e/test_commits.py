"""Runs know their commit: from the repository around the working directory, or from the CI job's variables."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path

HERE, IN_CI = "a1" * 20, "c3" * 20


def run(*words: str, place: Path, **settings: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=environment(**settings), timeout=60, cwd=place
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_has_the_commit_of_its_directory_or_of_the_ci_job(tmp_path: Path) -> None:
    in_job = {"GITHUB_ACTIONS": "true", "GITHUB_SHA": IN_CI}
    run("wrap", "--quiet", "--out", "runs/a", "--", "true", place=tmp_path, **in_job)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(f"{HERE}\n")
    # The job has checked out another commit than that of its variables: it measures the base.
    run("wrap", "--quiet", "--out", "runs/b", "--", "true", place=tmp_path, **in_job)
    rows = json.loads(run("runs", "runs", "--json", "--columns", "commit", place=tmp_path))
    assert [row["commit"] for row in rows] == [IN_CI, HERE]
    compared = run("compare", "runs/a", "runs/b", "--format", "markdown", place=tmp_path)
    assert f"base: true, commit {IN_CI[:10]}" in compared
    assert f"head: true, commit {HERE[:10]}" in compared
    run("runs", "runs", "--page", "all.html", place=tmp_path)
    assert HERE[:10] in (tmp_path / "all.html").read_text()
    run("runs", "runs", "--page", "shared.html", "--redact", place=tmp_path)
    assert HERE[:10] not in (tmp_path / "shared.html").read_text()

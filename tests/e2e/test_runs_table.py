"""Runs get names and tags, and are found by them in one table."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import recorded
from tests.support.wrapped import PROGRAM, call, environment

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_is_found_by_the_name_and_the_tags_that_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 1234)
    done = call(
        "wrap", "--quiet", "--no-plot", "--name", "count words", "--tag", "rule=count", "--tag=size=7", "--", "wc", "data",
        cwd=tmp_path, OTEL_MEMWATCH_TAG="rule=overridden;batch=3", SLURM_JOB_ID="99",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "memwatch-runs").iterdir()
    assert directory.name.split("-")[1] == "count_words"
    info = json.loads((directory / "run.json").read_text())
    assert info["tags"] == {"slurm.job": "99", "rule": "count", "batch": "3", "size": "7"}
    assert info["input_bytes"] == 1234
    told = json.loads(call("report", "latest:count words", "--json", cwd=tmp_path).stdout)
    assert (told["run"]["name"], told["run"]["tags"]["batch"]) == ("count words", "3")
    (row,) = json.loads(
        call("runs", "--json", "--where", "tag.rule=count and input=1234", cwd=tmp_path).stdout
    )
    assert row["path"] == f"memwatch-runs/{directory.name}"
    (tmp_path / "count words").write_text("a program of this name\n")
    assert json.loads(call("runs", "count words", "--json", cwd=tmp_path).stdout) == [row]
    assert call("runs", "other words", cwd=tmp_path).returncode != 0


def test_short_jobs_share_a_directory_that_is_named_once(tmp_path: Path) -> None:
    for number in range(2):
        done = call(
            "wrap",
            "--quiet",
            "--",
            "python3",
            "-c",
            "pass",
            cwd=tmp_path,
            OTEL_MEMWATCH_RUNS="all",
            SLURM_ARRAY_TASK_ID=str(number),
        )
        assert done.returncode == 0, done.stderr
    done = call("runs", "--columns", "name,tag.slurm.task,state", cwd=tmp_path, OTEL_MEMWATCH_RUNS="all")
    assert [line.split() for line in done.stdout.splitlines()[1:3]] == [["0", "finished"], ["1", "finished"]]
    assert done.stdout.splitlines()[3].startswith("2 runs, ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tag", "rule"], "is not KEY=VALUE"),
        (["--tag", "=x"], "is not KEY=VALUE"),
        (["--name", "a/b"], "is not a name"),
        (["--name", "latest"], "is not a name, because it selects other runs"),
    ],
)
def test_a_name_or_tag_that_cannot_be_one_is_refused_before_the_start(
    words: list[str], said: str, tmp_path: Path
) -> None:
    done = call("wrap", *words, "--", "touch", "started", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, changes in (
        ("one", {"tags": {"rule": "align"}}),
        ("two", {"tags": {"rule": "sort"}, "name": "=1+1"}),
        (
            "three",
            {
                "tags": {"rule": "align"},
                "exit": {"exit_code": 3, "signal": None, "oom_kills": 0, "reason": "exit code 3"},
            },
        ),
    ):
        path = recorded.short(tmp_path / "memwatch-runs" / name)
        info: dict[str, Any] = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(info | changes))
    return tmp_path


def test_tables_are_sorted_filtered_grouped_and_exported(place: Path) -> None:
    def rows(*words: str) -> list[str]:
        done = call("runs", *words, cwd=place)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert [line.split()[0] for line in rows("--columns", "tag.rule,run", "--sort", "-tag.rule")[1:4]] == [
        "sort",
        "align",
        "align",
    ]
    assert rows("--where", "exit!=0", "--columns", "id") == ["id", "three"]
    grouped = rows("--group", "tag.rule")
    assert [line.split()[:3] for line in grouped[1:3]] == [["align", "2", "1"], ["sort", "1", "-"]]
    assert grouped[3].startswith("3 runs, 1 failed, the largest ")
    table = list(csv.DictReader(io.StringIO("\n".join(rows("--format", "csv")))))
    assert {row["tag.rule"] for row in table} == {"align", "sort"}
    assert all(float(row["memory"]) > 0 for row in table)
    assert call("runs", "--format", "parquet", "-o", "runs.parquet", cwd=place).returncode == 0
    assert (place / "runs.parquet").read_bytes()[:4] == b"PAR1"
    done = call("runs", "--where", "peak>1TiB", cwd=place)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "otel-memwatch: No matching runs (3 checked in memwatch-runs).\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "peak>"], "a value is missing"),
        (["--sort", "colour"], "there is no field 'colour'"),
        (["--columns", ","], "there is no field nothing"),
        (["--group", "key", "--format", "csv"], "exclude each other"),
        (["--json", "--format", "csv"], "exclude each other"),
        (["--last", "0"], "0 is not in the range"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, place: Path) -> None:
    done = call("runs", *words, cwd=place)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_the_table_is_true_while_jobs_write_and_several_people_ask(tmp_path: Path) -> None:
    """Six jobs go on beside forty finished runs, from which on rows are kept; four ask at once. The benchmark has fifty."""
    home, jobs = tmp_path / "memwatch-runs", 6
    finished = recorded.short(home / "finished-00")
    for number in range(1, 40):
        shutil.copytree(finished, home / f"finished-{number:02}")
    os.mkfifo(tmp_path / "gate")
    going = [
        subprocess.Popen(
            [*PROGRAM, "wrap", "--quiet", "--no-report", "--interval", "0.05", "--name", f"job {number}", "--", "cat", "gate"],
            cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL,
        )
        for number in range(jobs)
    ]  # fmt: skip

    def asked() -> list[dict[str, Any]]:
        asking = [
            subprocess.Popen([*PROGRAM, "runs", "--format", "json", "--columns", "name,state,low,high,error"],
                             cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(4)
        ]  # fmt: skip
        answers: list[list[dict[str, Any]]] = []
        for process in asking:
            out, err = process.communicate(timeout=100)
            assert (process.returncode, err) == (0, b"")
            answers.append(json.loads(out))
        for rows in answers:
            assert sum(row["name"] is None and row["state"] == "finished" for row in rows) == 40
        return answers[0]

    try:
        until = time.monotonic() + 100
        while True:
            rows = [row for row in asked() if row["name"]]
            if (
                {row["state"] for row in rows} == {"running"}
                and len(rows) == jobs
                and all(row["low"] for row in rows)
            ):
                break
            assert time.monotonic() < until, rows
        with (tmp_path / "gate").open("wb"):
            pass
        assert [process.wait(timeout=100) for process in going] == [0] * jobs
    finally:
        for process in going:
            process.kill()
            process.wait()
    done = {row["name"]: row for row in asked() if row["name"]}
    assert sorted(done) == [f"job {number}" for number in range(jobs)]
    assert {row["state"] for row in done.values()} == {"finished"}
    assert all(row["low"] <= done[row["name"]]["high"] for row in rows), "more was certain than there was"

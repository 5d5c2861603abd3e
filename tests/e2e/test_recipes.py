"""Recipes of make behind the recording shell: recorded by the compiled program, which Python succeeds if they are long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_memwatch
from otel_memwatch.record.fields import mapping
from otel_memwatch.record.resource import ci_attributes
from otel_memwatch.record.tags import engine_tags
from otel_memwatch.run import load
from otel_memwatch.wings.index.index import index
from tests.e2e.test_shell import BASH, SCRIPTS, install, recorded
from tests.support.wrapped import MIB, environment

RECORDER = Path(otel_memwatch.__file__).parent / "monitor/launcher/recipe"
"""Beside the package that is imported: in CI that is the installed wheel."""
SURROUNDINGS = ("RANK", "TRACEPARENT", "JENKINS_URL", "KUBERNETES_SERVICE_HOST")
"""Variables of the test's own surroundings that make Python record."""
WAIT = "touch ready; while [ ! -e go ]; do sleep 0.02; done; "

pytestmark = pytest.mark.skipif(
    not os.access(RECORDER, os.X_OK) and "CI" not in os.environ,
    reason="the recorder of recipes is not compiled",
)


def below_make(**variables: str) -> dict[str, str]:
    own = {name: value for name, value in environment().items() if name not in SURROUNDINGS}
    return own | {"MAKELEVEL": "1"} | variables


def start(shell: Path | str, script: str, place: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [shell, "-c", script], cwd=place, env=below_make(**variables), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def code(shell: Path | str, script: str, place: Path, **variables: str) -> int:
    with start(shell, script, place, **variables) as process:
        process.communicate(timeout=60)
        return process.returncode


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(place: Path) -> list[dict[str, object]]:
    store = place / "memwatch-runs" / "recipes.jsonl"
    return [json.loads(line) for line in store.read_bytes().splitlines()]


def test_it_behaves_as_the_real_shell_and_appends_a_line(tmp_path: Path) -> None:
    shell = install(tmp_path)
    for arguments, text in SCRIPTS:
        found = [
            subprocess.run(
                [one, *arguments], input=text, cwd=tmp_path, env=below_make(), capture_output=True, text=True, timeout=60
            )
            for one in (shell, BASH)
        ]  # fmt: skip
        ours, real = ((done.returncode, done.stdout, done.stderr) for done in found)
        assert ours == real, arguments
    # A busy machine may make a short script long: then it has a separate directory.
    commands = [found["command"] for found in lines(tmp_path) + recorded(tmp_path / "memwatch-runs")]
    assert sorted(command[1:] for command in commands) == sorted(arguments for arguments, _ in SCRIPTS)  # type: ignore[index]


def test_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    shell = install(tmp_path)
    words = [b"-c", b"true", b'\xff"\\\n\x01', "ä€😀".encode(), b"\xed\xa0\x80\xc0\xaf"]
    subprocess.run([shell, *words], cwd=tmp_path, env=below_make(), check=True, timeout=60)
    (row,) = index([tmp_path / "memwatch-runs"])
    assert list(row.command[1:]) == [os.fsdecode(word) for word in words]


def test_both_recorders_agree(tmp_path: Path) -> None:
    shell = install(tmp_path)
    script = f"{sys.executable} -c 'x = bytearray(80 << 20)'; exit 3"
    for variables in ({}, {"RANK": "0"}):
        assert code(shell, script, tmp_path, **variables) == 3
    runs = [load(row.path) for row in index([tmp_path / "memwatch-runs"])]
    assert len(runs) == 2
    assert runs[0].command == runs[1].command
    assert runs[0].cwd == runs[1].cwd
    assert [run.ending.reason for run in runs] == ["exit code 3"] * 2
    for run in runs:
        for peak in (run.peaks.tree, run.peaks.process):
            assert peak is not None
            assert (peak.low or 0) < 110 * MIB
            assert peak.high is None or peak.high > 80 * MIB
        assert run.totals["cpu_seconds"]


def test_no_page_fault_is_lost_at_the_entry_into_the_cgroup(tmp_path: Path) -> None:
    """One fault outside of it may mean memory outside of it: half of the recipes lost the upper bound of their peak."""
    shell = install(tmp_path)
    for _ in range(8):
        assert code(shell, "true; touch made", tmp_path) == 0
    for line in lines(tmp_path):
        if line["own_cgroup"] is None:
            pytest.skip("recipes have no cgroup here")
        usage, target, cgroup = (mapping(line[name]) for name in ("usage", "target", "cgroup"))
        assert (
            usage["minor_faults"] + usage["major_faults"] - target["faults_before"] == cgroup["total_pgfault"]
        )


@pytest.mark.parametrize(
    "name", ["JENKINS_URL", "SLURM_JOB_ID", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_MEMWATCH_TAG"]
)
def test_surroundings_that_a_record_describes_are_left_to_python(tmp_path: Path, name: str) -> None:
    shell = install(tmp_path)
    value = "http://127.0.0.1:9" if name.startswith("OTEL_EXPORTER") else "a=b"
    assert code(shell, "true", tmp_path, **{name: value}) == 0
    assert len(recorded(tmp_path / "memwatch-runs")) == 1


def test_budgets_of_a_project_are_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.otel-memwatch.budgets]\nmemory = "1MiB"\n')
    below = tmp_path / "below"
    below.mkdir()
    shell = install(tmp_path)
    assert code(shell, f"{sys.executable} -c 'x = bytearray(9 << 20)'", below) == 1
    assert len(recorded(below / "memwatch-runs")) == 1


def test_a_long_recipe_is_recorded_like_any_other_run(tmp_path: Path) -> None:
    shell = install(tmp_path)
    process = start(shell, f"{WAIT}{sys.executable} -c 'x = bytearray(60 << 20)'; exit 5", tmp_path)
    until(lambda: bool(list(tmp_path.glob("memwatch-runs/*/samples.jsonl"))))
    (tmp_path / "go").touch()
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 5
    (path,) = tmp_path.glob("memwatch-runs/*/")
    run = load(path)
    assert (run.state, run.ending.reason) == ("finished", "exit code 5")
    assert run.seconds > 1
    assert run.peaks.tree is not None
    assert (run.peaks.tree.high or 1 << 60) > 60 * MIB
    assert not lines(tmp_path)
    assert not run.marks


@pytest.mark.parametrize("group", [False, True], ids=["alone", "group"])
def test_a_signal_arrives_once(tmp_path: Path, group: bool) -> None:
    shell = install(tmp_path)
    script = 'trap "echo trapped; n=1" TERM; touch ready; while [ -z "$n" ] || [ ! -e go ]; do sleep 0.02; done; exit 6'
    process = start(shell, script, tmp_path)
    until((tmp_path / "ready").exists)
    (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "trapped\n"
    (tmp_path / "go").touch()
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 6
    assert len(index([tmp_path / "memwatch-runs"])) == 1


def test_the_shell_survives_its_recorder(tmp_path: Path) -> None:
    shell = install(tmp_path)
    with start(shell, f"{WAIT}touch done", tmp_path) as process:
        until((tmp_path / "ready").exists)
        process.kill()
        process.wait(60)
        (tmp_path / "go").touch()
        until((tmp_path / "done").exists)


def test_marked_operations_belong_to_the_recipe(tmp_path: Path) -> None:
    shell = install(tmp_path)
    program = "from otel_memwatch import operation\nwith operation('step'):\n x = bytearray(40 << 20)"
    (tmp_path / "program.py").write_text(program)
    assert code(shell, f"{sys.executable} program.py", tmp_path) == 0
    (row,) = index([tmp_path / "memwatch-runs"])
    (figures,) = load(row.path).operations
    assert figures.operation.name == "step"


def test_a_store_that_takes_no_line_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    shell = install(tmp_path)
    limited = f"ulimit -f 0; exec {shell} -c 'exit 4'"
    done = subprocess.run(
        [BASH, "-c", limited], cwd=tmp_path, env=below_make(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert "the recipe is not recorded" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_store_that_is_no_file_is_left_to_python(tmp_path: Path) -> None:
    shell = install(tmp_path)
    (tmp_path / "memwatch-runs" / "recipes.jsonl").mkdir(parents=True)
    assert code(shell, "exit 4", tmp_path) == 4
    assert len(recorded(tmp_path / "memwatch-runs")) == 1


def test_nothing_remains_beside_the_line(tmp_path: Path) -> None:
    shell = install(tmp_path)
    assert code(shell, "true", tmp_path) == 0
    if not recorded(tmp_path / "memwatch-runs"):  # unless the machine was too busy for a short recipe
        assert os.listdir(tmp_path / "memwatch-runs") == ["recipes.jsonl"]
        (line,) = lines(tmp_path)
        assert line["own_cgroup"] is None or not Path(str(line["own_cgroup"])).exists()
        assert (tmp_path / "memwatch-runs/recipes.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    shell = install(tmp_path)
    (tmp_path / "memwatch-runs").mkdir()
    (tmp_path / "memwatch-runs/recipes.jsonl").write_bytes(b'{"schema":1,"id":"20260101T0000')
    assert code(shell, "true", tmp_path) == 0
    assert len(index([tmp_path / "memwatch-runs"])) == 1


def test_a_job_of_ci_is_identified_and_its_secrets_are_not_kept(tmp_path: Path) -> None:
    shell = install(tmp_path)
    job = {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_RUN_ID": "7",
        "GITHUB_SHA": "abc",
        "GITHUB_TOKEN": "secret",
    }
    assert code(shell, "true", tmp_path, **job) == 0
    (row,) = index([tmp_path / "memwatch-runs"])
    assert row.tags["github.run"] == "7"
    assert row.tags["commit"] == "abc"
    assert load(row.path).info["ci"]["vcs.ref.head.revision"] == "abc"
    assert not any(
        b"secret" in path.read_bytes() for path in tmp_path.glob("memwatch-runs/**/*") if path.is_file()
    )


def test_the_recorder_knows_all_variables_that_identify_a_job() -> None:
    source = RECORDER.with_suffix(".c").read_text()
    asked: set[str] = set()

    class Environment(dict[str, str]):
        """Each variable is set, except one. Notes the names that are read."""

        def __init__(self, absent: str) -> None:
            self.absent = absent

        def get(self, name: str, _default: object = None) -> str:  # type: ignore[override]
            asked.add(name)
            return "" if name == self.absent else "1"

        __getitem__ = get

    for absent in ("GITHUB_HEAD_REF", "GITHUB_ACTIONS"):
        ci_attributes(Environment(absent))
        engine_tags(Environment(absent), None, {}, 0)
    of_ci = {name for name in asked if name.startswith(("GITHUB_", "GITLAB_", "CI_", "RUNNER_"))}
    assert len(of_ci) > 15
    assert not {name for name in of_ci if f'"{name}"' not in source}

"""A shell that engines are given instead of the real one: it records each script, and behaves as the real one does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.run import load
from otel_memwatch.wings.index.index import index
from tests.support.wrapped import MIB, PROGRAM, environment

BASH = shutil.which("bash") or "bash"

SCRIPTS = (
    (["-c", "exit 3"], ""),
    (["-c", "false; echo on"], ""),
    (["-e", "-c", "false; echo on"], ""),
    (["-euo", "pipefail", "-c", "false | cat; echo on"], ""),
    (["-c", "set -euo pipefail;  false | cat; echo on"], ""),
    (["-u", "-c", 'echo "$missing"'], ""),
    (["-c", "kill -TERM $$"], ""),
    (["-c", "kill -9 $$"], ""),
    (["-c", 'printf "%s|" "$0" "$@"', "name", "a b", "", "'\"$x"], ""),
    (["-c", "cat; echo to stderr >&2"], "from stdin\n"),
    ([], "echo from $0; exit 5\n"),
    (["-s", "one"], 'echo "$1"\n'),
    (["--norc", "--noprofile", "-c", "shopt -q login_shell; echo $?"], ""),
    (["-c", "echo ${BASH##*/} $-"], ""),
    (["-c", "nonsense-that-is-no-command"], ""),
    (["missing-script.sh"], ""),
    (["-n", "-c", "echo not run"], ""),
    (["--no-such-option"], ""),
    (["-c", "if then"], ""),
    (["-c", "trap 'echo trapped; exit 7' EXIT; exit 1"], ""),
)
"""Arguments of a shell, and what it reads."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "with a blank"
    made.mkdir()
    return made


def install(place: Path, *options: str) -> Path:
    done = subprocess.run(
        [*PROGRAM, "shell", "--install", "shells", *options],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    path = Path(done.stdout.strip())
    assert path == place / "shells" / "bash"
    return path


def run(
    shell: str | Path, arguments: list[str], text: str, place: Path, **variables: str
) -> tuple[int, str, str]:
    done = subprocess.run(
        [shell, *arguments], input=text, cwd=place, env=environment() | variables, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def recorded(runs: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(runs.glob("*/run.json"))]


def test_it_behaves_as_the_real_one_and_records(place: Path) -> None:
    shell = install(place)
    for arguments, text in SCRIPTS:
        assert run(shell, arguments, text, place) == run(BASH, arguments, text, place), arguments
    runs = recorded(place / "memwatch-runs")
    assert len(runs) == len(SCRIPTS)
    assert {tuple(found["command"][1:]) for found in runs} == {tuple(arguments) for arguments, _ in SCRIPTS}  # type: ignore[index]


def test_a_shell_below_a_shell_is_part_of_the_same_run(place: Path) -> None:
    shell = install(place)
    assert run(shell, ["-c", '"$1" -c "echo inner"', "x", str(shell)], "", place)[1] == "inner\n"
    assert len(recorded(place / "memwatch-runs")) == 1


def test_make_records_each_recipe_without_an_edit(place: Path) -> None:
    shell = install(place, "--runs", "recorded")
    (place / "Makefile").write_text(
        f"all: a b\na b:\n\t{sys.executable} -c 'x = bytearray(60 << 20)' && touch $@\n"
    )
    blank_free = place.parent / "plain"
    blank_free.symlink_to(place)
    subprocess.run(
        ["make", "-j2", f"SHELL={blank_free}/shells/{shell.name}"],
        cwd=place,
        env=environment(),
        check=True,
        timeout=120,
    )
    rows = index([place / "recorded"])
    assert len(rows) == 2
    assert all((row.memory or 0) > 60 * MIB for row in rows)


def test_no_variable_of_the_file_reaches_the_command(place: Path) -> None:
    """A shell exports again each variable that it found in its environment."""
    shell = install(place, "--runs", "recorded")
    given = {"runs": "5", "file": "6", "real": "7"}
    code, out, err = run(shell, ["-c", 'echo "$runs $file $real"'], "", place, **given)
    assert (code, out, err) == (0, "5 6 7\n", "")


def test_what_cannot_be_recorded_runs_all_the_same(place: Path) -> None:
    (place / "file").touch()
    shell = install(place, "--runs", "file/below")
    code, out, err = run(shell, ["-c", "echo done; exit 4"], "", place)
    assert (code, out) == (4, "done\n")
    assert err == f"otel-memwatch: {place}/file/below cannot be written: nothing is recorded\n"
    installed = shell.read_text()
    for file in (sys.executable, "/launcher/recipe"):
        shell.write_text(installed.replace(file, f"{file}-gone"))
        code, out, err = run(shell, ["-c", "echo done; exit 4"], "", place)
        assert (code, out) == (4, "done\n"), file
        assert err.endswith("-gone is gone: nothing is recorded\n")


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"OTEL_MEMWATCH_OUT": "."}, id="directory that exists"),
        pytest.param({"OTEL_MEMWATCH_INTERVAL": "often"}, id="wrong value"),
        pytest.param({"OTEL_MEMWATCH_BUDGET": "memory=+5%"}, id="budget without baseline"),
        pytest.param({"OTEL_MEMWATCH_REPEAT": "2"}, id="repeated"),
    ],
)
def test_settings_that_cannot_be_used_do_not_keep_a_script_from_running(
    place: Path, variables: dict[str, str]
) -> None:
    shell = install(place)
    script = ["-c", 'trap -p; echo "done $1"; cat; exit 4', "x", "--"]
    code, out, err = run(shell, script, "stdin\n", place, **variables)
    assert (code, out) == (4, "done --\nstdin\n")
    assert err.startswith("otel-memwatch: nothing is recorded: ")
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("name", ["PYTHONHOME", "PYTHONPATH"])
def test_variables_of_another_python_are_for_the_command_alone(place: Path, name: str) -> None:
    shell = install(place)
    (place / "json.py").write_text("raise SystemExit(7)")
    code, out, err = run(shell, ["-c", f'echo "${name}"'], "", place, **{name: str(place)})
    assert (code, out, err) == (0, f"{place}\n", "")
    assert len(recorded(place / "memwatch-runs")) == 1


def test_installed_packages_are_found(place: Path) -> None:
    """The start runs without `site`; the exporter needs OpenTelemetry and requests all the same."""
    shell = install(place)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    code, out, err = run(shell, ["-c", "echo done"], "", place, **endpoint)
    assert (code, out) == (0, "done\n")
    assert "the OTLP endpoint http://127.0.0.1:9 refuses connections" in err


def test_a_package_that_is_gone_does_not_keep_a_script_from_running(place: Path) -> None:
    shell = install(place)
    shell.write_text(shell.read_text().replace("otel_memwatch.cli.recorded_shell", "otel_memwatch_gone"))
    for script in (["-c", "echo done; exit 4"], ["-c", "trap -p; kill -PIPE $$; echo not reached"]):
        code, out, err = run(shell, script, "", place)
        assert (code, out) == run(BASH, script, "", place)[:2]
        assert err == "otel-memwatch: nothing is recorded: No module named 'otel_memwatch_gone'\n"


@pytest.mark.parametrize("descriptors", [12, 13, 16, 20, 30])
def test_few_descriptors_do_not_keep_a_script_from_running(place: Path, descriptors: int) -> None:
    """dash itself needs eleven for any script."""
    shell = install(place)
    limited = f'ulimit -n {descriptors}; exec "$0" -c "echo done; exit 4"'
    code, out, err = run(BASH, ["-c", limited, str(shell)], "", place)
    assert (code, out) == (4, "done\n"), err
    assert "Traceback" not in err, err


def test_a_mistake_is_one_sentence(place: Path) -> None:
    install(place)
    for options, expected in (
        (["--install", "shells"], "is there already"),
        (["--install", "x", "--name", "a/b"], "is no name of a shell"),
        (["--install", "x", "--name", "no-such-shell"], "There is no no-such-shell on PATH"),
        ([], "--install"),
    ):
        done = subprocess.run(
            [*PROGRAM, "shell", *options],
            cwd=place,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
    assert not (place / "x").exists()


def test_a_run_is_a_row_of_snakemakes_benchmark(place: Path) -> None:
    shell = install(place)
    run(shell, ["-c", f"{sys.executable} -c 'x = bytearray(100 << 20)'"], "", place)
    done = subprocess.run(
        [*PROGRAM, "export", "latest", "--to", "snakemake-benchmark"],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    head, row = (line.split("\t") for line in done.stdout.splitlines())
    assert head == [
        "s",
        "h:m:s",
        "max_rss",
        "max_vms",
        "max_uss",
        "max_pss",
        "io_in",
        "io_out",
        "mean_load",
        "cpu_time",
        "max_needed",
    ]
    found = dict(zip(head, row, strict=True))
    assert 100 < float(found["max_rss"]) < 125
    assert 100 < float(found["max_needed"]) < float(found["max_rss"])
    assert found["max_pss"] == "NA" or float(found["max_pss"]) <= float(found["max_rss"])
    assert found["h:m:s"].startswith("0:00:")


SNAKEFILE = """
rule all:
    input: "big.txt", "fails.txt"
rule big:
    output: "big.txt"
    shell: "PYTHON -S -c 'x = bytearray(256 << 20)'; touch {output}"
rule fails:
    output: "fails.txt"
    shell: "false; touch {output}"
"""


def test_snakemake_records_each_rule_without_an_edit(place: Path, tmp_path: Path) -> None:
    snakemake = os.environ.get("OTEL_MEMWATCH_SNAKEMAKE")
    if snakemake is None:
        pytest.skip("snakemake is not installed: sh tests/run.sh all")
    install(place)
    (tmp_path / "shells").symlink_to(place / "shells")
    (place / "Snakefile").write_text(SNAKEFILE.replace("PYTHON", sys.executable))
    done = subprocess.run(
        [snakemake, "-c", "2", "-k", "--default-resources", f"shell_exec='{tmp_path}/shells/bash'"],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert (place / "big.txt").exists()
    assert not (place / "fails.txt").exists(), "a failing command went unnoticed"
    runs = {found.ending.exit_code: found for found in map(load, (place / "memwatch-runs").iterdir())}
    assert set(runs) == {0, 1}
    tree = runs[0].peaks.tree
    assert tree is not None
    assert tree.bytes == pytest.approx(260 * MIB, abs=10 * MIB)

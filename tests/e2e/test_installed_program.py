"""The installed program, which starts the command before Python if it can, beside the plain twin, which never does."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import otel_memwatch
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
from otel_memwatch.record import command_key
from otel_memwatch.run import load
from otel_memwatch.runtime.own_python import PACKAGE_PARENT
from tests.support.prefixes import INSTALLED
from tests.support.wrapped import PROGRAM, environment

SOURCE = Path(otel_memwatch.__file__).parent / "monitor/launcher/launch.c"
TWIN = INSTALLED.with_name("plain-otel-memwatch")
SHOW = "sleep 0.3; tr '\\0' '\\n' </proc/$PPID/environ"
"""Shell text that prints the monitor's environment, once it is Python."""

pytestmark = pytest.mark.skipif(
    not TWIN.exists() and "CI" not in os.environ, reason="the program is not compiled and installed"
)


def wrap(
    arguments: list[object], cwd: Path, program: list[str] | None = None, **how
) -> subprocess.CompletedProcess[str]:
    how.setdefault("env", environment())
    argv = [*(program or [str(INSTALLED)]), "wrap", "--quiet", "--no-report", *map(str, arguments)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, **how)


def starts_at_once(arguments: list[object], cwd: Path, **how) -> bool:
    """Return whether the program itself starts the command: Python then has the state in a variable."""
    done = wrap([*arguments, "--", "sh", "-c", SHOW], cwd, **how)
    assert done.returncode == 0, done.stderr
    return "OTEL_MEMWATCH_STARTED=" in done.stdout


def has_version_1() -> bool:
    """Return whether this user can make a cgroup of version 1, as `wrap` does."""
    try:
        group = OwnCgroup.create()
    except Unavailable:
        return False
    group.remove()
    return group.version == 1


at_once = pytest.mark.skipif(not has_version_1(), reason="Python starts the command here")


@at_once
def test_it_starts_the_command_at_once_in_the_simple_case_only(tmp_path: Path) -> None:
    assert starts_at_once(["--out", "a"], tmp_path)
    assert starts_at_once(["--runs=below/these", "--name", "one"], tmp_path)
    assert starts_at_once(["--out", "i", "--interval", "0.05"], tmp_path)
    assert not starts_at_once(["--out", "b", "--interval", "50ms"], tmp_path)
    assert not starts_at_once(["--out", "j", "--tag", "k=v"], tmp_path)
    assert not starts_at_once(
        ["--out", "k", "--cgroup=off"], tmp_path
    )  # the first sample must not come later
    assert not starts_at_once(["--out", "./c"], tmp_path)
    assert not starts_at_once(["--out", "d"], tmp_path, env=environment(OTEL_MEMWATCH_TAG="k=v"))
    assert not starts_at_once(
        ["--out", "e"], tmp_path, env=environment(TRACEPARENT=f"00-{'1' * 32}-{'2' * 16}-01")
    )
    assert not starts_at_once(["--out", "f"], tmp_path, pass_fds=(), preexec_fn=lambda: os.close(0))
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["otel-memwatch"]\n')
    assert starts_at_once(["--out", "l"], tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.otel-memwatch.budgets]\nmemory = "1GiB"\n')
    assert not starts_at_once(["--out", "g"], tmp_path)
    assert not starts_at_once([], tmp_path)  # the name of a run of `sh -c` is found by Python
    assert {load(run).fields.state for run in tmp_path.glob("?")} == {"finished"}


def test_a_child_from_before_the_start_is_not_of_the_run(tmp_path: Path) -> None:
    """A shell that becomes the program leaves it its children."""
    text = f'sleep 1 & exec "{INSTALLED}" wrap --quiet --no-report --out r -- sh -c "{SHOW}"'
    done = subprocess.run(
        ["sh", "-c", text], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert "OTEL_MEMWATCH_STARTED=" not in done.stdout
    assert not any("sleep 1" in " ".join(one.command) for one in load(tmp_path / "r").processes)


@pytest.mark.parametrize(
    "command",
    [
        ["true"], ["/bin/true"], ["python3", "-c", "pass"], ["python3", "-m", "this"], ["python3", "work.py"],
        ["python3", "./a/work"], ["sh", "work.sh"], ["bash", "a/work"], ["sh", "-x", "work.sh"], ["python3", "-X", "dev", "work.py"], ["./a/odd name"], ["env", "true"], ["sh", "-c", "true"],
        ["git", "version"], ["./a/.hidden"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_default_directory_has_the_same_name(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("work.py", "work.sh", "a/work", "a/odd name", "a/.hidden"):
        (tmp_path / name).write_text("#!/bin/sh\n" if "work" not in name else "")
        (tmp_path / name).chmod(0o755)
    labels = set()
    for program in ([str(INSTALLED)], PROGRAM):
        done = wrap(["--", *command], tmp_path, program)
        assert done.returncode == 0, done.stderr
        (run,) = (tmp_path / "memwatch-runs").iterdir()
        labels.add(re.fullmatch(r"\d{8}T\d{6}Z-(.*)-\d+", run.name)[1])
        os.rename(run, tmp_path / f"{len(labels)}{os.urandom(4).hex()}")
    assert len(labels) == 1


def test_it_leaves_the_labels_that_it_cannot_find_to_python() -> None:
    found = {}
    for table in ("OTHER_LABELS", "SHELLS"):
        listed = re.search(rf"{table}\[\] = \{{(.*?)NULL\}}", SOURCE.read_text(), re.DOTALL)
        assert listed
        found[table] = set(re.findall(r'"([^"*]+)\*?"', listed[1]))
    assert found["SHELLS"] == command_key._SHELLS
    others = (
        command_key._WITH_SUBCOMMANDS
        | set(command_key._LAUNCHERS)
        | set(command_key._INTERPRETERS)
        | {"java"}
    )
    assert found["OTHER_LABELS"] == others - {"python"}


@at_once
def test_the_end_of_the_command_is_that_of_the_command(tmp_path: Path) -> None:
    """Python may begin to wait only long after it: here it is stopped for a second."""
    text = "(sleep 1; kill -CONT $PPID) & kill -STOP $PPID"
    assert wrap(["--out", "r", "--", "sh", "-c", text], tmp_path).returncode == 0
    run = load(tmp_path / "r")
    assert run.seconds < 0.7, run.seconds


@pytest.mark.parametrize("program", ["installed", "plain"])
def test_a_command_that_does_not_exist(program: str, tmp_path: Path) -> None:
    chosen = [str(INSTALLED)] if program == "installed" else PROGRAM
    (tmp_path / "windows").write_bytes(b"#!/bin/sh\r\n")
    (tmp_path / "windows").chmod(0o755)
    (tmp_path / "text").write_text("")
    expected = {"nosuch": 127, "./nosuch": 127, "./windows": 127, "./text": 126, ".": 126}
    for command, code in expected.items():
        done = wrap(["--out", "r", "--", command], tmp_path, chosen)
        plain = wrap(["--out", "p", "--", command], tmp_path, PROGRAM)
        assert (done.returncode, done.stderr) == (code, plain.stderr)
        assert not (tmp_path / "r").exists()


def test_the_environment_of_the_command_has_the_same_variables(tmp_path: Path) -> None:
    names = []
    for program in ([str(INSTALLED)], PROGRAM):
        done = wrap(["--out", f"r{len(names)}", "--", "env", "-0"], tmp_path, program)
        names.append({word.partition("=")[0] for word in done.stdout.split("\0")})
    assert names[0] == names[1]


@pytest.mark.parametrize(
    "options",
    [
        ["--interval", "1.2.3"], ["--interval=0"], ["--cgroup", "on"], ["--out", ""], ["--quite"], [f"--interval=1.{'0' * 99}"],
        *(["--out", "r", "--name", name] for name in ("a\nb", "latest", "-x", "a/b", "n" * 201)),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_before_anything_starts(options: list[str], tmp_path: Path) -> None:
    done = wrap([*options, "--", "touch", "started"], tmp_path)
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "started").exists()


def test_nothing_starts_if_python_cannot(tmp_path: Path) -> None:
    for variable in ("HOME", "HASHSEED", "IOENCODING", "MALLOC", "TRACEMALLOC", "UTF8"):
        where = environment(**{f"PYTHON{variable}": "mistake"})
        assert wrap(["--out", "r", "--", "touch", "started"], tmp_path, env=where).returncode != 0
    little = ["sh", "-c", 'ulimit -v 8000; exec "$@"', "sh", str(INSTALLED)]
    assert wrap(["--out", "r", "--", "touch", "started"], tmp_path, little).returncode != 0
    assert os.listdir(tmp_path) == []


@at_once
def test_the_program_ends_as_the_command_if_the_environment_is_too_large_for_python(tmp_path: Path) -> None:
    """The words "-S" and the state need more of it than the command's variables."""
    stack = resource.getrlimit(resource.RLIMIT_STACK)
    filled = {**environment(), **{f"A{number}": "x" * 100_000 for number in range(2)}}
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, stack[1]))  # a quarter is for the environment
    try:
        for size in range(62_000, 30_000, -50):
            with suppress(OSError):  # too large for the program itself
                done = wrap(
                    ["--out", "r", "--", "sh", "-c", "exit 3"], tmp_path, env={**filled, "B": "x" * size}
                )
                if done.returncode == 3:  # else too large for the command
                    break
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, stack)
    assert (done.returncode, os.listdir(tmp_path)) == (3, [])
    assert re.fullmatch(
        "otel-memwatch: nothing is recorded: .*/python.*: Argument list too long\n", done.stderr
    )


def test_another_name_of_the_program_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".otel-memwatch-wrapped").write_bytes(INSTALLED.read_bytes())
    (tmp_path / "plain-otel-memwatch").write_bytes(TWIN.read_bytes())
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    named = [str(tmp_path / ".otel-memwatch-wrapped")]
    assert wrap(["--out", "r", "--", "sh", "-c", "exit 3"], tmp_path, named).returncode == 3
    assert load(tmp_path / "r").fields.state == "finished"


def test_the_path_of_python_may_have_blanks(tmp_path: Path) -> None:
    here = tmp_path / "a b"
    here.mkdir()
    (here / "python3").symlink_to(Path(sys.executable).resolve())
    (here / "otel-memwatch").write_bytes(INSTALLED.read_bytes())
    _, _, script = TWIN.read_text().partition("\n")
    (here / "plain-otel-memwatch").write_text(f"#!{here}/python3\n{script}")
    for file in here.iterdir():
        file.chmod(0o755)
    where = environment(PYTHONPATH=os.pathsep.join([PACKAGE_PARENT, *sys.path[1:]]))
    done = wrap(
        ["--out", "r", "--", "sh", "-c", "exit 3"], tmp_path, [str(here / "otel-memwatch")], env=where
    )
    assert (done.returncode, done.stderr) == (3, "")


def test_without_its_script_or_python_it_says_so(tmp_path: Path) -> None:
    alone = tmp_path / "otel-memwatch"
    alone.write_bytes(INSTALLED.read_bytes())
    alone.chmod(0o755)
    done = wrap(["--out", "r", "--", "true"], tmp_path, [str(alone)])
    assert (done.returncode, done.stderr) == (
        126,
        f"otel-memwatch: {tmp_path}/plain-otel-memwatch, or its interpreter: No such file or directory\n",
    )
    (tmp_path / "plain-otel-memwatch").write_text(f"#!{tmp_path}/python\n")
    (tmp_path / "plain-otel-memwatch").chmod(0o755)
    assert wrap(["--out", "r", "--", "true"], tmp_path, [str(alone)]).returncode == 126
    assert not (tmp_path / "r").exists()


@at_once
def test_the_command_ends_as_without_us_if_the_package_does_not_work(tmp_path: Path) -> None:
    (tmp_path / "otel_memwatch").mkdir()
    (tmp_path / "otel_memwatch/__init__.py").write_text("raise OSError('gone')\n")
    done = wrap(
        ["--out", "r", "--", "sh", "-c", "sleep 0.3; echo done; exit 5"],
        tmp_path,
        env=environment(PYTHONPATH=str(tmp_path)),
    )
    assert (done.returncode, done.stdout) == (5, "done\n")
    assert done.stderr == "otel-memwatch: nothing is recorded: OSError('gone')\n"


def test_other_packages_are_found_without_site_at_the_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [INSTALLED, "report", "--help"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: otel-memwatch report" in done.stdout

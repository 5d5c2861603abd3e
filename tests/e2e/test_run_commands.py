"""`report`, `plot`, `runs` and `export` as a user calls them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import recorded
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path


def call(*words: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    more.setdefault("env", environment())
    return subprocess.run(
        [*PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
        **more,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with three runs, the last of them the newest, and two that are broken."""
    base = tmp_path / "memwatch-runs"
    for age, name in ((2, "workers"), (1, "nested"), (0, "short")):
        path = getattr(recorded, name)(base / name)
        file = path / "run.json"
        info = json.loads(file.read_text())
        info["started"]["wall"] -= age * 1000
        file.write_text(json.dumps(info))
    (base / "empty").mkdir()
    (base / "torn").mkdir()
    (base / "torn/run.json").write_text('{"schema"')
    return tmp_path


def test_the_newest_run_is_intended_when_none_is_named(place: Path) -> None:
    for words in (
        ("report",),
        ("report", "latest"),
        ("report", "memwatch-runs/short"),
        ("report", "memwatch-runs/short/run.json"),
    ):
        done = call(*words, cwd=place)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("otel-memwatch: short\n")


def test_json_and_formats(place: Path) -> None:
    told = json.loads(call("report", "memwatch-runs/nested", "--json", cwd=place).stdout)
    assert told["ended"]["oom_kills"] == 1
    assert (
        call("report", "memwatch-runs/nested", "--format", "json", cwd=place).stdout
        == json.dumps(told, indent=2) + "\n"
    )
    assert "OOM killer" in call("report", "memwatch-runs/nested", "--format", "summary", cwd=place).stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("report", "absent"), 1, "There is no run absent"),
        (("report", "memwatch-runs/torn"), 1, "damaged"),
        (("report", "memwatch-runs/empty"), 1, "is empty"),
        (("report", "memwatch-runs"), 1, "is not a run directory, but contains"),
        (("report", "--json", "--format", "text"), 2, "exclude each other"),
        (("report", "--format", "poem"), 2, "'poem' is not one of"),
        (("report", "a", "b"), 2, "unexpected extra argument"),
        (("plot", "memwatch-runs/short", "-o", "x.jpg"), 2, "'jpg'"),
        (("plot", "memwatch-runs/short", "-o", "absent/x.png"), 1, "No such file or directory"),
        (("plot", "--style", "baroque"), 2, "'baroque'"),
        (("export", "memwatch-runs/short"), 2, "--to"),
        (("export", "memwatch-runs/short", "--to", "xls"), 2, "'xls'"),
        (("export", "memwatch-runs/torn", "--to", "csv", "-o", "x.csv"), 1, "damaged"),
        (("runs", "absent"), 1, "There is no directory absent"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], code: int, told: str, place: Path) -> None:
    done = call(*words, cwd=place)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert done.stderr.startswith("otel-memwatch: ")
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in place.iterdir()) == ["memwatch-runs"]


def test_without_any_run(tmp_path: Path) -> None:
    done = call("report", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = call("runs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "otel-memwatch: There is no run below memwatch-runs.\n"
    assert json.loads(call("runs", "--json", cwd=tmp_path).stdout) == []


def test_what_is_broken_is_reported_when_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "memwatch-runs/torn").mkdir(parents=True)
    (tmp_path / "memwatch-runs/torn/run.json").write_text("{")
    done = call("report", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "damaged" in done.stderr


def test_runs_are_listed_with_the_newest_last_and_broken_ones_with_the_reason(place: Path) -> None:
    done = call("runs", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [
        f"memwatch-runs/{name}" for name in ("workers", "nested", "short")
    ]
    assert "560-656 MiB  range" in lines[1]
    assert "498.2 MiB  exact" in lines[2]
    assert "OOM killer" in lines[2]
    broken = {line.split()[0]: line for line in lines[4:]}
    assert "is empty" in broken["memwatch-runs/empty"]
    assert "broken" in broken["memwatch-runs/torn"]


def test_runs_as_json(place: Path) -> None:
    told = json.loads(call("runs", "--json", "memwatch-runs", cwd=place).stdout)
    assert [entry["state"] for entry in told] == ["finished"] * 3 + ["broken"] * 2
    assert told[1]["peaks"]["tree"]["certainty"] == "exact"
    assert all(entry["error"] for entry in told[3:])
    (one,) = json.loads(call("runs", "--json", "memwatch-runs/nested", cwd=place).stdout)
    assert one["id"] == "nested"


def test_a_folder_of_other_things_lists_only_runs(place: Path) -> None:
    shutil.copytree(place / "memwatch-runs/short", place / "other/mine")
    (place / "other/letters").mkdir()
    (place / "other/letters/letter.txt").touch()
    (place / "other/note.txt").touch()
    told = json.loads(call("runs", "--json", "other", cwd=place).stdout)
    assert [entry["path"] for entry in told] == ["other/mine"]


def test_a_plot_goes_into_the_run_or_where_it_is_wanted(place: Path) -> None:
    for _ in range(2):
        done = call("plot", cwd=place)
        assert (done.returncode, done.stderr) == (0, "memwatch-runs/short/memory.png\n")
    assert (place / "memwatch-runs/short/memory.png").read_bytes().startswith(b"\x89PNG")
    assert call("plot", "latest", "-o", "x.pdf", cwd=place).returncode == 0
    before = (place / "x.pdf").read_bytes()
    assert before.startswith(b"%PDF")
    refused = call("plot", "memwatch-runs/nested", "-o", "x.pdf", cwd=place)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (place / "x.pdf").read_bytes() == before
    assert call("plot", "memwatch-runs/nested", "-o", "x.pdf", "--force", cwd=place).returncode == 0
    assert (place / "x.pdf").read_bytes() != before


def test_a_picture_goes_to_a_pipe_but_not_to_a_terminal(place: Path) -> None:
    piped = subprocess.run(
        [*PROGRAM, "plot", "-o", "-"], capture_output=True, cwd=place, env=environment(), check=True
    )
    assert piped.stdout.startswith(b"\x89PNG")
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, "plot", "-o", "-"],
            stdout=follower,
            stderr=subprocess.PIPE,
            cwd=place,
            env=environment(),
            check=False,
        )
    finally:
        os.close(follower)
        os.close(leader)
    assert done.returncode == 2
    assert b"stdout is a terminal" in done.stderr


def test_export_to_a_file_and_to_stdout(place: Path) -> None:
    done = call("export", "--to", "csv", cwd=place)
    assert done.stdout.count("\n") == 4
    assert call("export", "--to", "csv", "-o", "x.csv", cwd=place).returncode == 0
    assert (place / "x.csv").read_text() == done.stdout
    assert call("export", "--to", "csv", "-o", "x.csv", cwd=place).returncode == 2
    assert json.loads(call("export", "--to", "json", "-o", "-", cwd=place).stdout)["schema"] == 1


def test_a_reader_that_goes_is_no_trouble(tmp_path: Path) -> None:
    recorded.day(tmp_path / "memwatch-runs/long", ticks=20_000)
    for command in ("export --to csv", "report --json", "report"):
        shell = f'{" ".join(PROGRAM)} {command} | head -c 10 >/dev/null; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(
            ["bash", "-c", shell],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(),
            check=True,
            timeout=120,
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_a_stdout_that_cannot_be_written_is_one_sentence(redirection: str, place: Path) -> None:
    for command in ("report", "runs", "report --json"):
        shell = f"{' '.join(PROGRAM)} {command} {redirection}"
        done = subprocess.run(
            ["sh", "-c", shell], capture_output=True, text=True, cwd=place, env=environment(), check=False
        )
        assert done.returncode in (1, 2)
        assert done.stderr.count("\n") == 1
        assert "stdout" in done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_a_terminal_without_unicode_gets_escapes(variables: dict[str, str], place: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "report", "memwatch-runs/nested"],
        capture_output=True,
        cwd=place,
        env=environment(**variables),
        check=True,
    )
    assert done.stderr == b""
    assert b"Export" in done.stdout
    assert done.stdout.isascii()


def test_reports_need_no_home_directory(place: Path) -> None:
    """matplotlib wants a place for its cache; where there is none, there is no message."""
    done = call(
        "plot",
        cwd=place,
        env=environment(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent", XDG_CONFIG_HOME="/nonexistent"),
    )
    assert (done.returncode, done.stderr) == (0, "memwatch-runs/short/memory.png\n")


def test_help_shows_the_formats(tmp_path: Path) -> None:
    assert "csv" in call("export", "--help", cwd=tmp_path).stdout
    for command in ("report", "plot", "runs", "export"):
        done = call(command, "--help", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert sys.executable

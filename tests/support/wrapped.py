"""Runs the product as a user does, and a workload of known truth under it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MIB = 1 << 20
HERE = Path(__file__).parent
PROGRAM = [sys.executable, "-m", "otel_memwatch"]
"""The command line of the interpreter that runs the tests: the same package, whatever is on PATH."""


@functools.cache
def workload() -> str:
    """Path of the compiled workload.c; see there for what its arguments mean."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-workload-"))
    folder.chmod(0o755)
    target = folder / "workload"
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    subprocess.run([compiler, "-O1", "-pthread", "-o", target, HERE / "workload.c"], check=True)
    return str(target)


def work(script: str) -> list[str]:
    """argv of the workload for a script of its words."""
    return [workload(), *script.split()]


def environment(**changes: str) -> dict[str, str]:
    """Ours without any variable of the product or of tracing, with `changes`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "TRACE")) and name != "CI"
    }
    return kept | changes


def rendered(directory: Path, name: str = "report.txt") -> Path:
    """Path of a report that `wrap` has written, once the detached process has made it."""
    path = directory / name
    until = time.monotonic() + 10
    while b"This report is being made" in path.read_bytes():
        assert time.monotonic() < until, f"{path} was not made"
        time.sleep(0.01)
    return path


def call(*words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line with these words in `cwd`, with `variables` in its environment."""
    return subprocess.run(
        [*PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=200,
        check=False,
        env=environment(**variables),
    )


class Wrapped:
    """A finished `wrap`: its outcome and its record."""

    def __init__(self, done: subprocess.CompletedProcess[str], directory: Path) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.directory = directory
        self.told = ""
        """processes.jsonl, where the test needs it after the directory has gone."""

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """run.json."""
        return dict(json.loads((self.directory / "run.json").read_text()))

    @functools.cached_property
    def report(self) -> dict[str, Any]:
        """The report's JSON, as the command line prints it."""
        done = subprocess.run(
            [*PROGRAM, "report", str(self.directory), "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return dict(json.loads(done.stdout))

    def peak(self, name: str) -> dict[str, Any]:
        """One of the report's peaks."""
        return dict(self.report["peaks"][name])

    def column(self, metric: str, **attributes: str) -> list[float]:
        """Known values of one series of samples.jsonl."""
        lines = [json.loads(line) for line in (self.directory / "samples.jsonl").read_text().splitlines()]
        names = [(c["metric"], c["attributes"]) for c in lines[0]["columns"]]
        place = 1 + names.index(
            (metric, {name.replace("_", "."): value for name, value in attributes.items()})
        )
        return [line[place] for line in lines[1:] if len(line) > place and line[place] is not None]

    def processes(self, event: str) -> list[dict[str, Any]]:
        """Lines of processes.jsonl."""
        lines = (self.directory / "processes.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def wrap(
    argv: list[str],
    *options: str,
    out: Path,
    cwd: Path | None = None,
    timeout: float = 120,
    through: Sequence[str] = (),
    **variables: str,
) -> Wrapped:
    """Runs `argv` under `wrap`, recorded in `out`, without picture; `through`: a command that starts another one."""
    done = subprocess.run(
        [*through, *PROGRAM, "wrap", "--out", str(out), "--no-plot", *options, "--", *argv],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env=environment(**variables),
        check=False,
        errors="surrogateescape",
    )
    return Wrapped(done, out)

"""Runs a program that marks operations, and reads what it recorded with nothing but `json`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import otel_memwatch
from tests.support.wrapped import environment

MIB = 1 << 20
ROOT = Path(otel_memwatch.__file__).resolve().parents[1]
"""Where the package is imported from: the sources, or the installed wheel."""

PROGRAMS = Path(__file__).parents[1] / "programs"
PRELUDE = (PROGRAMS / "marking.py").read_text().replace("from __future__ import annotations\n", "")
"""What a short program begins with; a longer one is a file in `PROGRAMS` that imports it."""


class Marked(NamedTuple):
    """One operation: its opening and closing lines (`closing` empty: it was left open)."""

    opening: dict[str, Any]
    closing: dict[str, Any]
    pid: int

    @property
    def name(self) -> str:
        return str(self.opening["name"])

    @property
    def grown(self) -> float:
        """MiB by which the peak stands above the size at the start."""
        return float(self.closing["peak"] - self.opening["rss"]) / MIB

    @property
    def delta(self) -> float:
        """MiB by which the process has grown from start to end."""
        return float(self.closing["rss"] - self.opening["rss"]) / MIB


class Program:
    """A finished program and its record."""

    def __init__(self, done: subprocess.CompletedProcess[str], directory: Path) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.directory = directory

    @property
    def operations(self) -> list[Marked]:
        """All operations of all its processes, in the order of their opening."""
        return sorted(
            (found for path in self.directory.glob("operations-*.jsonl") for found in read_file(path)),
            key=lambda found: found.opening["time"],
        )

    def named(self, name: str) -> list[Marked]:
        return [found for found in self.operations if found.name == name]

    def one(self, name: str) -> Marked:
        (found,) = self.named(name)
        return found


def read_file(path: Path) -> list[Marked]:
    """The operations of one process; every line has to be whole JSON."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    header, boundaries = lines[0], lines[1:]
    assert header["schema"] == 1
    boundaries = [line for line in boundaries if "schema" not in line]
    closings = {line["close"]: line for line in boundaries if "close" in line}
    openings = [line for line in boundaries if "open" in line]
    assert len({line["open"] for line in openings}) == len(openings), "an id was given twice"
    assert set(closings) <= {line["open"] for line in openings}, "something was closed that was never opened"
    return [Marked(line, closings.get(line["open"], {}), header["pid"]) for line in openings]


def run(
    source: str | Path,
    directory: Path,
    *,
    prelude: str = PRELUDE,
    arguments: tuple[str, ...] = (),
    **variables: str,
) -> Program:
    """Runs Python source, or a file, as a separate program whose operations go to `directory`."""
    directory.mkdir(exist_ok=True)
    if isinstance(source, Path):
        script = source
    else:
        script = directory / "program.py"
        script.write_text(prelude + textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment(**{"OTEL_MEMWATCH_RUN_DIR": str(directory), "PYTHONPATH": str(ROOT)} | variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Program(done, directory)


def succeed(
    source: str | Path, directory: Path, *, arguments: tuple[str, ...] = (), **variables: str
) -> Program:
    """As `run`; the program must end well and say nothing on stderr."""
    program = run(source, directory, arguments=arguments, **variables)
    assert program.code == 0, program.err
    assert not program.err, program.err
    return program

"""Runs a tool on a command and measures both from outside, with the kernel's own accounts."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.compare.peers import Peer, Reported, program
from tests.support.control_group import group
from tests.support.wrapped import environment as clean

WORKLOADS = Path(__file__).with_name("workloads")
LIMIT = 120.0
"""Seconds after which a tool is given up."""


class Done(NamedTuple):
    """A finished run of a tool."""

    code: int
    wall: float
    """Seconds."""
    cpu: float
    """Seconds of everything that it started and waited for, itself included (wait4)."""
    output: str


@contextmanager
def folder() -> Iterator[Path]:
    """A scratch directory."""
    path = Path(tempfile.mkdtemp(prefix="memwatch-compare-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def variables(peer: Peer | None) -> dict[str, str]:
    """Environment of a tool: ours, with its programs first in PATH."""
    if peer is None or peer.python is None:
        return clean()
    path = f"{Path(program(peer.python, 'python')).parent}:{os.environ['PATH']}"
    return clean(PATH=path, **peer.variables)


def begin(
    argv: Sequence[str], where: Path, env: Mapping[str, str], output: int, **rest: object
) -> subprocess.Popen[bytes]:
    """Starts it, output to a file of the folder."""
    return subprocess.Popen(
        argv, cwd=where, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, **rest
    )  # type: ignore[call-overload, no-any-return]


def run(argv: Sequence[str], where: Path, peer: Peer | None = None, **rest: object) -> Done:
    """Runs it to its end."""
    with open(where / "output", "wb") as output:
        started = time.perf_counter()
        process = begin(argv, where, variables(peer), output.fileno(), **rest)
        killer = _guard(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (where / "output").read_text(errors="replace")
    return Done(process.returncode, wall, usage.ru_utime + usage.ru_stime, text)


def _guard(pid: int) -> object:
    import threading

    timer = threading.Timer(LIMIT, os.kill, (pid, 9))
    timer.daemon = True
    timer.start()
    return timer


def read(peer: Peer, where: Path, output: str) -> Reported | None:
    """What it reports; `None`: nothing that could be read."""
    try:
        return peer.read(where, output)
    except Exception:
        return None


def refereed(argv: Sequence[str], where: Path) -> tuple[Done, int]:
    """Runs a command in a separate control group; gives the bytes of its watermark less the page cache left in it."""
    with group() as referee:
        done = run(argv, where, preexec_fn=referee.enter)
        cache = dict(line.split() for line in (referee.path / "memory.stat").read_text().splitlines())
        kept = int(cache.get("total_cache", cache.get("file", "0")))
        return done, referee.peak - kept


def spread(figures: Sequence[float]) -> dict[str, float | list[float]]:
    """Median, extremes and all of it."""
    return {
        "median": statistics.median(figures),
        "min": min(figures),
        "max": max(figures),
        "raw": [round(figure, 6) for figure in figures],
    }

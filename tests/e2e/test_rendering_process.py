"""Whatever becomes of the libraries that reports and pictures need, the command's end is ours and its record is whole."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from otel_memwatch.run import load
from tests.support.control_group import Group, group
from tests.support.torture import Trial, trial, wait_for
from tests.support.wrapped import PROGRAM as COMMAND
from tests.support.wrapped import rendered, work

PROGRAM = """
import time
from otel_memwatch.in_target.operations import operation
with operation("Load"):
    kept = bytearray(40 << 20)
    time.sleep(0.1)
raise SystemExit(7)
"""
MARKED = [sys.executable, "-c", PROGRAM]


def library(folder: Path, name: str, body: str) -> dict[str, str]:
    """Variables under which Python finds this in place of a library."""
    package = folder / "libraries" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(body)
    return {"PYTHONPATH": str(package.parent)}


def finished(run: Trial) -> None:
    """The record reports the command's end, and no trouble with itself."""
    recorded = load(run.out)
    assert recorded.state == "finished"
    assert recorded.info["exit"]["exit_code"] == 7


DYING = "import os\nos.write(2, b'OpenBLAS error: no memory left, giving up.\\n')\nos._exit(1)\n"


def test_a_library_that_ends_its_process(tmp_path: Path) -> None:
    """As OpenBLAS does: there is a summary, it says that the picture is missing, the exit code is the command's."""
    with trial(tmp_path) as run:
        command = run.command(work("s400 x7"), plot=True)
        outcome = run.run(command, env=run.variables(**library(tmp_path, "matplotlib", DYING)))
        assert outcome.code == 7, outcome.err
        assert "exit code 7 after" in outcome.err
        told = "memory.png could not be made: OpenBLAS error: no memory left, giving up.; the record is whole"
        assert [line for line in outcome.ours if told in line], outcome.err
        assert (run.out / "report.txt").exists()
        assert not (run.out / "memory.png").exists()
        finished(run)


def test_by_default_no_process_waits_for_a_library(tmp_path: Path) -> None:
    """Report and page are made without numpy and matplotlib, and there is no picture without a request for one."""
    with trial(tmp_path) as run:
        places = library(tmp_path, "matplotlib", DYING) | library(tmp_path, "numpy", DYING)
        variables = run.variables(**places)
        outcome = run.run(run.command(work("s700 x7")), env=variables)
        assert outcome.code == 7, outcome.err
        assert "OpenBLAS" not in outcome.err
        assert not [line for line in outcome.ours if "could not be made" in line], outcome.err
        assert {"report.txt", "report.html"} <= set(os.listdir(run.out))
        assert not (run.out / "memory.png").exists()
        assert (run.out / "report.html").stat().st_mode & 0o777 == 0o600
        assert b"exit code 7" in rendered(run.out, "report.html").read_bytes().lower()
        finished(run)


def test_operations_are_reported_without_numpy(tmp_path: Path) -> None:
    """The monitor knows what reports tell of them: nothing is loaded, and nothing is read again."""
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    with trial(tmp_path) as run:
        variables = run.variables(**library(tmp_path, "numpy", crash))
        outcome = run.run(run.command(MARKED), env=variables)
        assert outcome.code == 7, outcome.err
        finished(run)
        told, again = rendered(run.out).read_text(), run.report().text
        # The record rounds the moments of ticks, so bytes between two of them may differ by a few.
        first, second = (
            re.sub(r"\d+ B", "B", text[text.index("Operations (1)") :]) for text in (told, again)
        )
        assert first == second


def test_strict_counts_what_could_not_be_made(tmp_path: Path) -> None:
    with trial(tmp_path) as run:
        variables = run.variables(**library(tmp_path, "matplotlib", DYING))
        assert run.run(run.command(work("s400 x7"), "--strict", plot=True), env=variables).code == 125
        finished(run)


def test_asked_to_end_while_a_picture_is_drawn(tmp_path: Path) -> None:
    """The picture is left out, at once and without a word; nothing of it is left behind."""
    begun = tmp_path / "begun"
    sleeping = (
        "import tempfile, time\nfrom pathlib import Path\n"
        "with tempfile.TemporaryDirectory():\n"
        f"    Path({str(begun)!r}).touch()\n    time.sleep(600)\n"
    )
    with trial(tmp_path) as run:
        variables = run.variables(**library(tmp_path, "matplotlib", sleeping))
        wrapped = run.start(run.command(work("s400 x7"), plot=True), env=variables)
        wait_for(begun.exists)
        os.kill(wrapped.pid, signal.SIGTERM)
        outcome = run.wait(wrapped)
        assert outcome.code == 7
        assert "exit code 7 after" in outcome.err
        assert "memory.png" not in outcome.err
        finished(run)


def test_no_process_to_be_had(tmp_path: Path) -> None:
    """The interpreter has gone while the command ran: all is made where the monitor is."""
    here = tmp_path / "python"
    here.symlink_to(sys.executable)
    packages = os.pathsep.join(path for path in sys.path if path)
    with trial(tmp_path) as run:
        script = f"rm {here}; sleep 0.4; exit 7"
        _, *rest = run.command(["sh", "-c", script], plot=True)
        outcome = run.run([str(here), *rest], env=run.variables(PYTHONPATH=packages))
        assert outcome.code == 7, outcome.err
        assert "picture" in outcome.err
        assert (run.out / "memory.png").read_bytes().startswith(b"\x89PNG")
        finished(run)


def test_nothing_in_the_working_directory_stands_in_for_a_module(tmp_path: Path) -> None:
    """A project's own `json.py` or `select.py` is not ours to import."""
    for name in ("json", "select", "importlib", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    with trial(tmp_path) as run:
        _, _, _, *rest = run.command(work("s400 x7"), plot=True)
        console = Path(sys.executable).with_name("otel-memwatch")
        outcome = run.run([str(console), *rest], cwd=tmp_path)
        assert outcome.code == 7, outcome.err
        assert (run.out / "memory.png").exists(), outcome.err


NEIGHBOUR = """
import sys, time
kept = b"x" * (int(sys.argv[1]) << 20)
print("ready", flush=True)
time.sleep(600)
"""
"""A service that shares a memory limit with the command."""


@contextlib.contextmanager
def neighbour(place: Group, mib: int) -> Iterator[subprocess.Popen[bytes]]:
    """One that has its memory already."""
    service = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(mib)],
        preexec_fn=place.enter,  # noqa: PLW1509 - there are no threads here
        stdout=subprocess.PIPE,
    )
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        yield service
    finally:
        service.kill()
        service.wait()
        if service.stdout is not None:
            service.stdout.close()


def test_a_picture_that_has_no_room_below_the_limit_is_left_out(tmp_path: Path) -> None:
    """The kernel kills the largest process of the group, which is the neighbour and not who takes too much."""
    with group(200 << 20) as place, neighbour(place, 130) as service, trial(tmp_path) as run:
        command = run.command(["sleep", "0.4"], "--quiet", plot=True)
        outcome = run.run(command, preexec_fn=place.enter)
        assert service.poll() is None
        assert outcome.code == 0, outcome.err
        (line,) = outcome.ours
        assert line.startswith("otel-memwatch: memory.png is left out: drawing takes up to "), outcome.err
        assert "below the cgroup's limit of 200 MiB" in line
        assert line.endswith(f": otel-memwatch plot {run.out}")
        assert not (run.out / "memory.png").exists()
        assert (run.out / "report.txt").exists()


def test_a_picture_is_drawn_where_page_cache_can_make_room(tmp_path: Path) -> None:
    """A group whose limit is reached by the cache of files that were written is not short of memory."""
    with (
        group(200 << 20) as place,
        trial(tmp_path) as run,
        tempfile.TemporaryDirectory(dir="/var/tmp") as disk,
    ):
        # What is not on disk could not be dropped.
        fill = ["dd", "if=/dev/zero", f"of={disk}/data", "bs=1M", "count=160", "conv=fsync", "status=none"]
        subprocess.run(fill, preexec_fn=place.enter, check=True)
        assert place.peak > 150 << 20
        outcome = run.run(run.command(["sleep", "0.4"], "--quiet", plot=True), preexec_fn=place.enter)
        assert not outcome.ours, outcome.err
        assert (run.out / "memory.png").exists()


def test_who_draws_is_the_first_that_the_kernel_kills_and_the_command_is_not(tmp_path: Path) -> None:
    scores = tmp_path / "scores"
    noting = f"open({str(scores)!r}, 'a').write(open('/proc/self/oom_score_adj').read())\nraise ImportError\n"
    with trial(tmp_path) as run:
        variables = run.variables(**library(tmp_path, "matplotlib", noting))
        argv = ["sh", "-c", "cat /proc/self/oom_score_adj; sleep 0.4"]
        outcome = run.run(run.command(argv, plot=True), env=variables)
        assert outcome.out == Path("/proc/self/oom_score_adj").read_text()
        assert scores.read_text().split()[:1] == ["1000"], outcome.err
        scores.unlink()
        subprocess.run([*COMMAND, "plot", run.out], env=variables, check=False, capture_output=True)
        assert scores.read_text().split()[:1] == ["1000"]

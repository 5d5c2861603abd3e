"""Report and page after the prompt: by a separate process, which ends within a second."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from tests.support.wrapped import environment, rendered, wrap

SLOW = """
import os, signal, sys
from otel_memwatch.monitor.workers import detached_report
import otel_memwatch.reports

def slow(*_):
    while True: signal.pause()

otel_memwatch.reports.render = slow
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
files = detached_report.DetachedReport(sys.argv[1])
files.start(None)
print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
sys.stdout.close()
os._exit(0)
"""
"""Starts a report that never ends, with all signals blocked as in the monitor, and prints its process."""


def test_the_note_becomes_the_report(tmp_path: Path) -> None:
    done = wrap(["true"], out=tmp_path / "run")
    assert done.code == 0
    names = set(os.listdir(tmp_path / "run"))
    assert {"report.txt", "report.html"} <= names, "both are there at the prompt"
    assert "exit code 0" in rendered(tmp_path / "run").read_text()
    page = rendered(tmp_path / "run", "report.html")
    assert page.read_bytes().startswith(b"<!DOCTYPE html>")
    assert len(page.read_bytes()) > 50_000
    assert page.stat().st_mode & 0o777 == 0o600
    assert set(os.listdir(tmp_path / "run")) == names, "no file was added, so the directory can be removed"


@pytest.mark.parametrize(
    ("way", "variables"),
    [(["--strict"], {}), ([], {"CI": "true"}), ([], {RUN_DIRECTORY_VARIABLE: "/around"})],
    ids=["strict", "ci", "inside another run"],
)
def test_complete_at_the_prompt_if_nothing_may_be_missing(
    tmp_path: Path, way: list[str], variables: dict[str, str]
) -> None:
    done = wrap(["true"], *way, out=tmp_path / "run", **variables)
    assert done.code == 0
    assert "exit code 0" in (tmp_path / "run" / "report.txt").read_text()
    assert len((tmp_path / "run" / "report.html").read_bytes()) > 50_000


def test_it_ends_within_its_time_and_holds_no_pipe(tmp_path: Path) -> None:
    """Our pipe ends with us. A report that takes too long is killed; its note names the command that makes it."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=60, pass_fds=[writer]
    )
    os.close(writer)
    assert done.stdout.strip().isdigit(), done.stderr
    assert os.read(reader, 10) == b"", "the process has closed what it had from its parent"
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{done.stdout.strip()}") and _state(int(done.stdout)) != "Z":
        assert time.monotonic() < until, "it outlives its second"
        time.sleep(0.02)
    assert f"otel-memwatch report {tmp_path}" in (tmp_path / "report.txt").read_text()
    assert 'http-equiv="refresh"' in (tmp_path / "report.html").read_text()


def test_a_report_that_fails_names_the_reason(tmp_path: Path) -> None:
    script = SLOW.replace("while True: signal.pause()", 'raise ValueError("no such thing")')
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment(), timeout=60, capture_output=True
    )
    assert "could not be made: ValueError: no such thing" in rendered(tmp_path).read_text()
    page = rendered(tmp_path, "report.html").read_text()
    assert "report.html could not be made: ValueError: no such thing" in page
    assert "http-equiv" not in page


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"

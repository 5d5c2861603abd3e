"""Trials of `advise --trade` with real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from otel_memwatch.wings.advice import trade
from otel_memwatch.wings.advice.trade import _stop, collect
from otel_memwatch.wings.index.indexed_run import IndexedRun


def test_a_run_that_is_given_up_leaves_no_process() -> None:
    """A compiler's driver ended at SIGTERM; its child went on to read its files again and again, for minutes."""
    command = ["sh", "-c", "sleep 600 > /dev/null & echo $!; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        _stop(process)
    gone, alive = psutil.wait_procs([child], timeout=60)
    assert (gone, alive) == ([child], [])


def test_files_of_a_short_program_are_found(tmp_path: Path) -> None:
    """`java -version` ended before it was looked at, so its files stayed in memory for the next run."""
    data = tmp_path / "data"
    data.write_bytes(b"x")
    command = ["sh", "-c", f"sh -c 'exec sleep 0.2 < {data}'; true"]
    files: set[str] = set()
    with subprocess.Popen(command) as process:
        assert collect(process, files, None)
    assert str(data) in files


def test_a_run_ends_with_the_bisection_that_started_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(process: subprocess.Popen[bytes], files: set[str], deadline: float | None) -> bool:
        started.append(process)
        raise KeyboardInterrupt

    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(trade, "collect", interrupted)
    row = IndexedRun("", "", "finished", command_json='["sleep", "600"]', mode="wrap", cwd=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        trade._tried(row, 0, set(), [])
    assert started[0].poll() is not None

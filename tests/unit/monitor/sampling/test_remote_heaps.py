"""Requests of allocators' statistics, with this process as the target."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.in_target.operations import native
from otel_memwatch.monitor.sampling import remote_heaps
from otel_memwatch.monitor.sampling.remote_heaps import NoReadingError, RemoteHeaps

if TYPE_CHECKING:
    from collections.abc import Sequence

compiled = pytest.mark.skipif(
    not native.COMPILED or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs compiled code and glibc 2.33",
)


def _run_script(_: RemoteHeaps, words: Sequence[str], *__: Any) -> None:
    exec(Path(words[words.index("-c") + 3]).read_text(), {})


def _run_late(_: RemoteHeaps, words: Sequence[str], *__: Any) -> None:
    script = Path(words[words.index("-c") + 3]).read_text()
    exec(script.replace("time.monotonic() > ", "time.monotonic() > 0 * "), {})


@compiled
def test_a_process_reads_its_allocators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteHeaps, "_request", _run_script)
    problems: list[str] = []
    reading = RemoteHeaps(str(tmp_path), problems.append)._reading(os.getpid(), sys.executable)
    assert reading is not None
    assert reading.pid == os.getpid()
    assert reading.time <= time.monotonic()
    assert {one.name for one in reading.allocators} & {"glibc", "jemalloc", "mimalloc"}
    assert not problems
    assert not list(tmp_path.iterdir())


@compiled
def test_a_late_script_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteHeaps, "_request", _run_late)
    monkeypatch.setattr(remote_heaps, "_DEADLINE", 0.1)
    problems: list[str] = []
    assert RemoteHeaps(str(tmp_path), problems.append)._reading(os.getpid(), sys.executable) is None
    assert "no answer within 0.1 s" in problems[0]
    (script,) = tmp_path.iterdir()  # a target prints an error if its script has vanished
    assert script.suffix == ".py"


@compiled
@pytest.mark.parametrize("answer", ['{"again":true,"heap":null}', "[]", "{}"])
def test_an_answer_without_figures_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    def answered(_: RemoteHeaps, words: Sequence[str], *__: Any) -> None:
        Path(words[words.index("-c") + 3]).with_suffix(".json").write_text(answer + "\n")

    monkeypatch.setattr(RemoteHeaps, "_request", answered)
    with pytest.raises(NoReadingError, match="no known statistics"):
        RemoteHeaps(str(tmp_path), print)._reading(os.getpid(), sys.executable)


def test_python_without_the_gil_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoReadingError, match="no GIL"):
        RemoteHeaps(str(tmp_path), print)._reading(os.getpid(), "/usr/bin/python3.14t")


@pytest.mark.parametrize("name", ["python3.14", "python3.15", "python3.14d", "python3.14t"])
def test_interpreters(name: str) -> None:
    assert remote_heaps._SUPPORTED.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["python3.13", "python3", "bash", "uwsgi", "python3.14 (deleted)", "python3.140"]
)
def test_other_programs_are_never_started(name: str) -> None:
    assert not remote_heaps._SUPPORTED.fullmatch(name)


def test_the_message_of_an_interpreter() -> None:
    text = "Traceback:\n  File ...\nRuntimeError: Remote debugging is not enabled in the remote process.\n"
    assert remote_heaps._last_line(text) == "Remote debugging is not enabled in the remote process"

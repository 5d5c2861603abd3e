"""Worker processes: jobs, answers, foreign output, time limits, signals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.compat.shared_recording import run_in_own_process
from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.worker import Worker, ended_by, serve, stop_requested
from tests.support.torture import wait_for

HERE = __name__
TESTS = str(Path(__file__).parents[3])


def main(_: list[str]) -> None:
    """The worker process of these tests."""
    serve(_work)


def _work(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    what = job["do"]
    if what == "facts":
        say(
            session=os.getsid(0) == os.getpid(),
            score=Path("/proc/self/oom_score_adj").read_text().strip(),
            threads=os.environ["OMP_NUM_THREADS"],
            blocked=bool(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        )
    elif what == "chatter":
        print("words of a library")
        say(size=len(job["data"]))
        os.write(2, b"OpenBLAS error\n")
        os._exit(3)
    elif what == "until stopped":
        while not stop_requested(0.05):
            Path(job["working"]).touch()
        say(stopped=True)
    elif what == "sleep":
        try:
            Path(job["begun"]).touch()
            time.sleep(600)
        finally:
            Path(job["left"]).touch()
    elif what == "refuse":
        raise MemwatchError("no such run")
    else:
        raise ValueError(what)


def worker(**more: Any) -> Worker:
    return Worker(HERE, {"PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1"}, **more)


def test_a_worker_has_a_separate_session_dies_first_and_blocks_no_signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        with worker() as one:
            one.give({"do": "facts"})
            answers = list(one.answers())
            assert one.end() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    assert answers == [{"session": True, "score": "1000", "threads": "1", "blocked": False}]


def test_the_last_words_of_a_library_are_kept_and_are_no_answer() -> None:
    with worker() as one:
        one.give({"do": "chatter", "data": "x" * 200_000})
        assert list(one.answers()) == [{"size": 200_000}]
        assert (one.finished, one.end(), one.last_words) == (True, 3, "OpenBLAS error")


def test_discarded_output_leaves_the_answers() -> None:
    with worker(discard_output=True) as one:
        one.give({"do": "chatter", "data": ""})
        assert list(one.answers()) == [{"size": 0}]
        assert (one.end(), one.last_words) == (3, "")


def test_the_end_of_stdin_stops_a_job_that_repeats_itself(tmp_path: Path) -> None:
    with worker() as one:
        one.give({"do": "until stopped", "working": str(tmp_path / "working")})
        wait_for((tmp_path / "working").exists)
        assert list(one.answers(60)) == [{"stopped": True}]


def test_a_time_limit_and_sigterm_end_a_worker_in_order(tmp_path: Path) -> None:
    begun = time.monotonic()
    with worker() as one:
        one.give({"do": "sleep", "begun": str(tmp_path / "begun"), "left": str(tmp_path / "left")})
        wait_for((tmp_path / "begun").exists)
        assert list(one.answers(0.2)) == []
        assert not one.finished
        assert one.end(patience=30) == 1
    assert (tmp_path / "left").exists()
    assert time.monotonic() - begun < 60


def test_giving_up_kills_and_leaves_no_zombie() -> None:
    with worker() as one:
        one.give({"do": "sleep", "begun": os.devnull, "left": os.devnull})
        assert list(one.answers(give_up=lambda: True)) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(one.pid, os.WNOHANG)


def test_a_worker_without_a_job_ends() -> None:
    with worker() as one:
        assert list(one.answers(60)) == []
        assert one.end() == 0


@pytest.mark.parametrize(
    ("job", "why"),
    [({"do": "refuse"}, "no such run"), ({"do": "nonsense"}, "ValueError: nonsense")],
)
def test_a_failed_report_names_the_cause(
    job: Mapping[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)
    with pytest.raises(MemwatchError, match=f"The report cannot be made: {why}"):
        run_in_own_process(HERE, job)


def test_how_a_process_ended() -> None:
    assert ended_by(3) == "exit code 3"
    assert ended_by(-9) == "its process was ended by SIGKILL"
    assert ended_by(-40) == "its process was ended by signal 40"

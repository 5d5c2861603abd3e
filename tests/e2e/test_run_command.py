"""`run_command` and `run_command_async` on real programs."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch import run_command, run_command_async
from otel_memwatch.errors import CommandNotStarted, UsageError
from tests.support.control_group import memory_parent
from tests.support.torture import alive

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    pids = [subprocess.Popen([sys.executable, __file__, "child"], start_new_session=session).pid for session in (False, True)]
    with open("pids", "w") as file:
        print(os.getpid(), *pids, file=file)
    os.mkfifo("ready")
time.sleep(600)
"""
"""A program with two children, all of which ignore SIGTERM."""
HOG = "import time\nkept = []\nwhile True:\n    kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.02)"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_it_returns_the_run(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        run = run_command(
            python("import os, sys; print(os.getcwd(), os.environ['WHO']); sys.exit(3)"),
            out=tmp_path / "r", cwd=tmp_path, env={**os.environ, "WHO": "me"}, stdout=out,
        )  # fmt: skip
    assert (run.verdict, run.ending.exit_code, run.path) == ("finished", 3, tmp_path / "r")
    assert (tmp_path / "out").read_text() == f"{tmp_path} me\n"
    assert run.peak.bytes > 0
    assert not (tmp_path / "r" / "report.txt").exists()


def test_warnings_arrive_before_the_limit(tmp_path: Path) -> None:
    memory_parent()
    warnings: list[Any] = []
    run = run_command(
        python(HOG), out=tmp_path / "r", limit=200 << 20, warn="30%", on_warning=warnings.append
    )
    assert (run.verdict, run.ending.signal) == ("limit", 9)
    of_limit = [one for one in warnings if one["of"] == "limit"]
    assert of_limit[0]["bytes"] < 200 << 20
    assert of_limit[0]["seconds_left"]["low"] > 0


def test_an_error_in_the_callback_ends_the_command(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    program = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(ZeroDivisionError):
        run_command(python(program), out=tmp_path / "r", cwd=tmp_path, warn="0.1%", on_warning=fail)
    written = tmp_path / "pid"
    assert not written.exists() or not written.read_text() or not alive(int(written.read_text()))


@pytest.fixture
def stubborn(tmp_path: Path) -> list[str]:
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN)
    return [sys.executable, str(program)]


def pids_of(place: Path) -> list[int]:
    """Wait until the stubborn program ignores SIGTERM; return its PIDs."""
    while not (place / "ready").exists():
        time.sleep(0.01)
    return [int(pid) for pid in (place / "pids").read_text().split()]


def test_an_error_ends_a_command_that_ignores_sigterm(tmp_path: Path, stubborn: list[str]) -> None:
    pids: list[int] = []

    def fail(_: object) -> None:
        pids.extend(pids_of(tmp_path))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(stubborn, out=tmp_path / "r", cwd=tmp_path, warn="0.1%", kill_after=0.2, on_warning=fail)
    assert len(pids) == 3
    assert not any(map(alive, pids))


def test_a_cancelled_task_ends_a_command_that_ignores_sigterm(tmp_path: Path, stubborn: list[str]) -> None:
    async def cancelled() -> list[int]:
        task = asyncio.create_task(
            run_command_async(stubborn, out=tmp_path / "r", cwd=tmp_path, kill_after=0.2)
        )
        pids = await asyncio.to_thread(pids_of, tmp_path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    assert not any(map(alive, asyncio.run(cancelled())))


@pytest.mark.parametrize(
    ("command", "settings", "message"),
    [
        ("ls -l", {}, "not a list of words"),
        ([], {}, "not a list of words"),
        (["true"], {"events": "3"}, "no setting 'events'"),
        (["true"], {"limitt": "3"}, "There is no setting 'limitt'"),
        (["true"], {"warn": "200%"}, "not a share above 0% and below 100%"),
        (["true"], {"stdout": -1}, "reads no pipe"),
    ],
)
def test_mistakes(command: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_command(command, **settings)


@pytest.mark.parametrize(
    ("command", "code", "number", "reason"),
    [
        ("no-such-command", 127, errno.ENOENT, "no-such-command: command not found"),
        (
            "./text",
            126,
            errno.EACCES,
            "./text: permission denied (chmod +x ./text, or name its interpreter).",
        ),
        ("./sub", 126, errno.EACCES, "./sub is a directory"),
    ],
)
def test_a_command_that_cannot_be_started(
    tmp_path: Path, command: str, code: int, number: int, reason: str
) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "sub").mkdir()
    with pytest.raises(CommandNotStarted) as caught:
        run_command([command], runs=tmp_path, cwd=tmp_path)
    assert (caught.value.exit_code, caught.value.errno, str(caught.value)) == (code, number, reason)


def test_several_at_once_in_an_event_loop(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(event: Any) -> None:
        seen.append(event["kind"])

    async def all_runs() -> Any:
        commands = [
            run_command_async(
                python("import time; time.sleep(0.3)"), out=tmp_path / str(n), warn="0.1%", on_warning=note
            )
            for n in range(3)
        ]
        return await asyncio.gather(*commands)

    runs = asyncio.run(all_runs())
    assert ([run.verdict for run in runs], seen) == (["finished"] * 3, ["machine"] * 3)


def test_a_cancelled_task_ends_the_command(tmp_path: Path) -> None:
    async def cancelled() -> int:
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        reader, writer = os.pipe()
        task = asyncio.create_task(run_command_async(python(program), out=tmp_path / "r", stdout=writer))
        await asyncio.sleep(0)
        pid = int(await asyncio.to_thread(os.read, reader, 20))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        os.close(reader)
        os.close(writer)
        return pid

    assert not alive(asyncio.run(cancelled()))

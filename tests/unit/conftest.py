"""A unit test starts no process: it stays fast, and what fails is the code that it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_STARTS = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "pty.spawn")
)
_running = False


def _refuse(event: str, _: object) -> None:
    if _running and event in _STARTS:
        pytest.fail(f"{event} in a unit test: what needs a process belongs to tests/contract or tests/e2e")


sys.addaudithook(_refuse)  # it stays for the life of the process, so it asks whether a unit test runs


@pytest.fixture(autouse=True)
def no_process() -> Iterator[None]:
    """Fails the test that starts a process."""
    global _running  # noqa: PLW0603 (the hook of the process)
    _running = True
    yield
    _running = False

"""Processes of the tools that read stacks, and their failures."""

from __future__ import annotations

import json
import os
import subprocess

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.runtime.typed import Any

PATIENCE = 5.0
"""Seconds after which a tool is given up."""


class NoStackError(Exception):
    """The stacks could not be read this time; the message is the tool's."""


class NotPermittedError(NoStackError):
    """The kernel refuses to read the process."""


def is_running(pid: int, thread: int) -> bool:
    """Return whether a thread runs, waits for a processor or for a page, rather than sleeps."""
    try:
        stat = read_once(f"/proc/{pid}/task/{thread}/stat")
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 :][:1] in (b"R", b"D")


def output_of(command: Sequence[str], patience: float = PATIENCE, given: bytes = b"") -> str:
    """Return the output of a tool that reads `given`. Raises `NoStackError` with its last line of errors."""
    # With DEBUGINFOD_URLS set, elfutils downloads debug information: seconds, while the program may be stopped.
    variables = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=patience,
            check=False,
            env=variables,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoStackError(f"{os.path.basename(command[0])}: {error}") from None
    errors = done.stderr.decode(errors="replace").strip()
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.decode(errors="replace")
    last = (errors.splitlines() or [f"exit code {done.returncode}"])[-1].strip()
    refused = ("permission denied", "operation not permitted", "permissionerror")
    if any(words in errors.lower() for words in refused):
        raise NotPermittedError(last)
    raise NoStackError(f"{os.path.basename(command[0])}: {last}")


def json_output(output: str) -> Any:
    """Parse JSON. Raises `NoStackError`."""
    try:
        return json.loads(output)
    except ValueError as error:
        raise NoStackError(f"unexpected output: {error}") from None

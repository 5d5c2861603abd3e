"""Errors that a person reads: what happened, to what, what to do.

Every error of this package derives from `MemwatchError`. The command line prints its message as one
sentence, then its hint, and exits with its `exit_code`; a traceback is left to defects.
"""

from __future__ import annotations


class MemwatchError(Exception):
    """Base of all errors of this package.

    Args:
        message: one sentence that names the thing concerned.
        hint: what to do about it, or nothing.
    """

    exit_code: int = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')} ({self.hint})." if self.hint else self.message


def shell_code(signal: int) -> int:
    """The exit code by which a shell says that a signal ended a process: 128 and its number."""
    return 128 + signal


def describe(error: BaseException) -> str:
    """What went wrong, in one line: a sentence of ours as it is, anything else after its kind."""
    if isinstance(error, MemwatchError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Of a page of advice, as numpy gives with an ImportError, the first and the last line are about the case.
    said = " ... ".join(dict.fromkeys(lines[:1] + lines[-1:]))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class UsageError(MemwatchError):
    """A setting or an argument that cannot be used. Nothing has been started."""

    exit_code = 2


class RunError(MemwatchError):
    """A run directory that cannot be read, or cannot be written."""

    exit_code = 1


class Unavailable(MemwatchError):  # noqa: N818 - a normal outcome: the feature is absent here
    """A source, exporter or report that cannot work on this machine; the hint says what would change it."""

    exit_code = 1


class Unanswered(Unavailable):
    """A server that gives no answer at all."""


class CommandNotStarted(MemwatchError):  # noqa: N818 - named for what happened
    """The command could not be executed; carries a shell's exit code, 127 (not found) or 126 (not executable)."""

    def __init__(self, message: str, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code

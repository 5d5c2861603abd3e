"""Errors for users: each states the failure, the object and the remedy.

Every error of this package derives from `MemwatchError`. The command line prints its message as one
sentence, then its hint, and exits with its `exit_code`. Only defects show a traceback.
"""

from __future__ import annotations


class MemwatchError(Exception):
    """Base of all errors of this package.

    Args:
        message: one sentence that names the object.
        hint: advice for the user, or nothing.
    """

    exit_code: int = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')} ({self.hint})." if self.hint else self.message


def shell_code(signal: int) -> int:
    """Return a shell's exit code for a process that a signal ended: 128 plus the signal number."""
    return 128 + signal


def describe(error: BaseException) -> str:
    """Return an error in one line: the message of a `MemwatchError`, file and reason of an `OSError`; of others, type and message."""
    if isinstance(error, MemwatchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # numpy adds a page of advice to an ImportError. Its first and last lines describe the case.
    said = " ... ".join(dict.fromkeys(lines[:1] + lines[-1:]))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class UsageError(MemwatchError):
    """An invalid setting or argument. Nothing has been started."""

    exit_code = 2


class RunError(MemwatchError):
    """A run directory that cannot be read or written."""

    exit_code = 1


class Unavailable(MemwatchError):  # noqa: N818 - a normal outcome: the feature is absent here
    """A source, exporter or report that cannot work on this machine; the hint names the remedy."""

    exit_code = 1


class TargetEnded(Unavailable):
    """A process that ended before it could be read."""


class Unanswered(Unavailable):
    """A server that does not answer."""


class CommandNotStarted(MemwatchError):  # noqa: N818 - named for what happened
    """A command that could not be executed; the exit code is a shell's: 127 (not found) or 126 (not executable)."""

    errno: int | None = None
    """Number of the system call's error; `None`: none failed, for example because an argument contains a null byte."""

    def __init__(self, message: str, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code

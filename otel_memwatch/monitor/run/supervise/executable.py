"""Command to execute: arguments, environment and search path; and the reason if exec fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from otel_memwatch.errors import CommandNotStarted

_NOT_HERE = frozenset(
    getattr(errno, name)
    for name in ("ENOENT", "ENOTDIR", "ESTALE", "ENODEV", "ETIMEDOUT", "ENAMETOOLONG", "ELOOP")
)
"""Errors after which the search along PATH continues."""
_SHELL = b"/bin/sh"


class Command:
    """Arguments and environment in bytes, and `execute`, which replaces the process like execvp(3).

    Args:
        argv: program and arguments. Text is encoded like file names: surrogates become the bytes that they represent.
        variables: added to the environment of this process; they replace variables of the same name.

    Raises:
        CommandNotStarted: for a command that no system call can express.

    """

    def __init__(self, argv: Sequence[str | bytes], variables: Mapping[str, str]) -> None:
        self.argv = [os.fsencode(argument) for argument in argv]
        if not self.argv:
            raise CommandNotStarted("There is no command to start", 127)
        if any(b"\0" in argument for argument in self.argv):
            raise CommandNotStarted("An argument of the command contains a null byte", 126)
        self.environment = environment()
        self.environment.update((os.fsencode(name), os.fsencode(value)) for name, value in variables.items())
        self.candidates = self._candidates()

    def _candidates(self) -> list[bytes]:
        """Return the paths to try, in order: the name itself if it has a slash, else the name in each directory of PATH."""
        name = self.argv[0]
        if b"/" in name or not name:
            return [name] if name else []
        path = self.environment.get(b"PATH")
        if path is None:
            path = os.fsencode(os.confstr("CS_PATH") or os.defpath)
        return [os.path.join(directory, name) for directory in path.split(b":")]

    def execute(self) -> tuple[int, bytes]:
        """Become the command. Return only if that fails: the errno, and the path that caused it."""
        failure = (errno.ENOENT, self.argv[0])
        for path in self.candidates:
            error = self._become(path, self.argv)
            if error == errno.ENOEXEC and _looks_like_text(path):
                error = self._become(_SHELL, [_SHELL, path, *self.argv[1:]])
            if error not in _NOT_HERE | {errno.EACCES} or b"/" in self.argv[0]:
                return error, path
            if error == errno.EACCES or (failure[0] != errno.EACCES and os.path.lexists(path)):
                failure = (error, path)
        return failure

    def _become(self, path: bytes, argv: list[bytes]) -> int:
        try:
            os.execve(path, argv, self.environment)  # noqa: S606 - verbatim: no shell
        except OSError as error:
            return error.errno or errno.EINVAL

    def failure(self, number: int, path: bytes) -> CommandNotStarted:
        """Return the error of `execute` in words, with a shell's exit code."""
        name, shown_path = _readable(self.argv[0]), _readable(path)
        if number == errno.ENOENT:
            interpreter = _interpreter(path)
            if interpreter:
                hint = "the file has Windows line endings" if interpreter.endswith("\\r") else None
                return CommandNotStarted(
                    f"{shown_path}: its interpreter {interpreter} does not exist", 127, hint
                )
            if b"/" in self.argv[0]:
                return CommandNotStarted(f"{name}: no such file", 127)
            return CommandNotStarted(f"{name}: command not found", 127, _hint(self.argv, name))
        if os.path.isdir(path):
            return CommandNotStarted(f"{shown_path} is a directory", 126)
        if number == errno.EACCES:
            hint = None if os.access(path, os.X_OK) else f"chmod +x {shown_path}, or name its interpreter"
            return CommandNotStarted(f"{shown_path}: permission denied", 126, hint)
        if number == errno.ENOEXEC:
            return CommandNotStarted(f"{shown_path} is not a program that this machine can run", 126)
        return CommandNotStarted(f"{shown_path}: {os.strerror(number).lower()}", 126)


_LONGEST_SHOWN = 100
"""Characters of a command line that a hint repeats."""
_BUILT_INS = frozenset(
    (
        b"alias",
        b"cd",
        b"eval",
        b"export",
        b"set",
        b"shift",
        b"source",
        b"trap",
        b"ulimit",
        b"umask",
        b"unset",
        b".",
        b":",
    )
)
"""Shell built-ins, which are not programs."""


def _hint(argv: Sequence[bytes], name: str) -> str | None:
    """Return advice for a command that does not exist; `None`: none."""
    if os.path.isfile(argv[0]):
        return f"to run the file in this directory, write ./{name}"
    if b" " in argv[0].strip():
        import shlex

        line = name if len(name) <= _LONGEST_SHOWN else "..."
        return f"quotes make it one word; for a shell command line: otel-memwatch wrap -- sh -c {shlex.quote(line)}"
    if argv[0] in _BUILT_INS:
        return "it is a shell built-in: otel-memwatch wrap -- sh -c '...'"
    variable, equals, _ = argv[0].partition(b"=")
    if equals and variable.decode("ascii", "replace").isidentifier():
        return f"to set a variable: {_readable(variable)}=... otel-memwatch wrap -- COMMAND"
    return None


def environment() -> dict[bytes, bytes]:
    """Return the environment that this process inherited, byte for byte.

    Python may have added LC_CTYPE to `os.environ` (PEP 538), so the kernel's copy is read. Without /proc use
    `os.environb`. If a variable occurs twice, the first one counts, as in getenv(3).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    variables: dict[bytes, bytes] = {}
    for entry in entries:
        end = entry.find(b"=", 1)
        if end > 0:
            variables.setdefault(entry[:end], entry[end + 1 :])
    return variables


def _looks_like_text(path: bytes) -> bool:
    """Return whether a file that the kernel cannot execute may be a shell script: no null byte in its first line."""
    try:
        with open(path, "rb") as file:
            return b"\0" not in file.read(80).split(b"\n")[0]
    except OSError:
        return False


def _interpreter(path: bytes) -> str | None:
    """Return the interpreter in the first line of a script if it does not exist; `None` otherwise.

    Like the kernel, take the carriage return of a Windows line end as part of the name.
    """
    try:
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].rstrip(b"\n").strip(b" \t").replace(b"\t", b" ").split(b" ")
    if first.startswith(b"#!") and words[0] and not os.path.exists(words[0]):
        return _readable(words[0]).replace("\r", "\\r")
    return None


def _readable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace") or "''"

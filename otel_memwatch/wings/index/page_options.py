"""The options `--redact` and `--open` of commands that write pages, and runs as reports with `--redact` read them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    _F = TypeVar("_F", bound=Callable[..., object])

_ALL = "--redact=all"
_START = 3.0
"""Seconds within which a browser reports that it cannot start. One that goes on for longer is left to itself."""
_PROGRAM = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


class RedactingCommand(click.Command):
    """Accept `--redact` and `--redact=all`. Click would take a name after `--redact` for its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace the long spelling by a flag."""
        end = args.index("--") if "--" in args else len(args)
        given = ["--redact-all" if word == _ALL else word for word in args[:end]]
        return super().parse_args(ctx, given + args[end:])


def redact_option(function: _F) -> _F:
    """Add `redact` ("", "names" or "all") to a `RedactingCommand`."""
    flag = click.option(
        "--redact",
        "redact",
        flag_value="names",
        default="",
        help="Replace command lines, paths, host, user, environment and attributes with placeholders; "
        "--redact=all also replaces names of operations and functions.",
    )
    return flag(click.option("--redact-all", "redact", flag_value="all", hidden=True)(function))


@contextlib.contextmanager
def redacted(path: str | Path, redact: str) -> Iterator[Path]:
    """Yield the run directory, or with `redact` a temporary redacted copy. Raises `RunError`."""
    if not redact:
        yield Path(path)
        return
    import tempfile

    from otel_memwatch.record.redaction import REDACTED, Redactor, redacted_copy

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / REDACTED
        copy.mkdir()
        redacted_copy(Path(path), copy, Redactor(everything=redact == "all"))
        yield copy


def open_option(option: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--open` to a command that writes its parameter `page`; `option` is the name of that parameter for users."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*arguments: Any, open_it: bool, page: str | None, **options: Any) -> Any:
            if open_it and page is None:
                raise UsageError("--open opens a page.", f"name its file with {option}")
            before = _version(page)
            result = function(*arguments, page=page, **options)
            if open_it and page is not None and _version(page) != before and not _opened(page):
                say(f"otel-memwatch: no browser found; open {clean(page)} in one")
            return result

        flag = click.option("--open", "open_it", is_flag=True, help="Open the written page in the browser.")
        return flag(command)

    return decorated


def _opened(page: str) -> bool:
    """Open a page in the browser; return False if there is none.

    A process does it, because Python waits until some browsers end, and others keep the output of a command open.
    """
    # Without TERM, Python offers no text browser, which would need the terminal.
    variables = {name: value for name, value in os.environ.items() if name != "TERM"}
    command = [sys.executable, "-I", "-c", _PROGRAM, Path(page).absolute().as_uri()]
    import subprocess  # 3 ms, which commands that open nothing need not spend

    none = subprocess.DEVNULL
    opener = subprocess.Popen(
        command, env=variables, stdin=none, stdout=none, stderr=none, start_new_session=True
    )
    try:
        return not opener.wait(_START)
    except subprocess.TimeoutExpired:
        opener.returncode = 0  # Python warns of a child that nothing waits for.
        return True


def _version(page: str | None) -> tuple[int, int] | None:
    """Return inode and time of a file, which change if it is written; `None`: there is no such file."""
    try:
        found = os.stat(page or "")
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns

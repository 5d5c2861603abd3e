"""The option `--open` of commands that write a page."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable


def open_option(option: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--open` to a command that writes its parameter `page`; `option` is the name of that parameter for users."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*arguments: Any, open_it: bool, page: str | None, **options: Any) -> Any:
            if open_it and page is None:
                raise UsageError("--open opens a page.", f"name its file with {option}")
            before = _version(page)
            result = function(*arguments, page=page, **options)
            if open_it and page is not None and _version(page) != before:
                import webbrowser

                if not webbrowser.open(Path(page).absolute().as_uri()):
                    say(f"otel-memwatch: no browser found; open {clean(page)}")
            return result

        flag = click.option("--open", "open_it", is_flag=True, help="Open the written page in the browser.")
        return flag(command)

    return decorated


def _version(page: str | None) -> tuple[int, int] | None:
    """Return inode and time of a file, which change if it is written; `None`: there is no such file."""
    try:
        found = os.stat(page or "")
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns

"""What the stream that a person reads can show: how many columns, and whether colours."""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Display(NamedTuple):
    """What a text is written for."""

    width: int | None = None
    """Columns of the terminal; `None`: a file, where lines are as long as they are."""
    colour: bool = False

    def paint(self, text: str, tone: str) -> str:
        """The text in a tone of `TONES`; as it is where there are no colours."""
        code = TONES.get(tone) if self.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


TONES = {"strong": "1", "faint": "2", "bad": "1;31", "warning": "33", "good": "32"}
"""The codes of a terminal by what they stand for; nothing is told by colour alone."""

FILE = Display()
"""What is written to a file, or sent through a pipe."""


def display_of(descriptor: int, environ: Mapping[str, str] | None = None) -> Display:
    """What the stream of a descriptor can show.

    ==================================  ==============================
    NO_COLOR, not empty                 no colours, whatever else says
    FORCE_COLOR, CLICOLOR_FORCE         colours, in a file too
    TERM=dumb                           no colours
    else                                colours on a terminal
    ==================================  ==============================

    COLUMNS stands above what the terminal says of its width.
    """
    environ = os.environ if environ is None else environ
    try:
        terminal = os.isatty(descriptor)
    except OSError:
        terminal = False
    return Display(_width(descriptor, environ) if terminal else None, _colour(environ, terminal=terminal))


def _colour(environ: Mapping[str, str], *, terminal: bool) -> bool:
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("TERM") != "dumb"


def _width(descriptor: int, environ: Mapping[str, str]) -> int | None:
    asked = environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        columns = os.get_terminal_size(descriptor).columns
    except OSError:
        return None
    return columns or None


def say(text: str) -> None:
    """Prints one of our own lines to stderr; stdout is the target's."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads our stderr: what we had to say must not end the target.
        return

"""Properties of output streams: width in columns, and colours."""

from __future__ import annotations

import os
import sys

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Display(NamedTuple):
    """Properties of the stream that a text is written to."""

    width: int | None = None
    """Columns of the terminal; `None` for a file, which has no line limit."""
    colour: bool = False

    def paint(self, text: str, tone: str) -> str:
        """Return the text in a tone of `TONES`, or unchanged without colours."""
        code = TONES.get(tone) if self.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


TONES = {"strong": "1", "faint": "2", "bad": "1;31", "warning": "33", "good": "32"}
"""Terminal codes by meaning. No information depends on colour alone."""

FILE = Display()
"""Display for a file or a pipe."""


def display_of(descriptor: int, environ: Mapping[str, str] | None = None) -> Display:
    """Return the display for the stream of a descriptor.

    The first matching row decides:

    ==================================  ==============================
    NO_COLOR, not empty                 no colours
    FORCE_COLOR, CLICOLOR_FORCE         colours, also in a file
    TERM=dumb                           no colours
    otherwise                           colours on a terminal
    ==================================  ==============================

    COLUMNS overrides the terminal's width.
    """
    environ = os.environ if environ is None else environ
    try:
        terminal = os.isatty(descriptor)
    except OSError:
        terminal = False
    return Display(columns(descriptor, environ) if terminal else None, _colour(environ, terminal=terminal))


def _colour(environ: Mapping[str, str], *, terminal: bool) -> bool:
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("TERM") != "dumb"


def columns(descriptor: int, environ: Mapping[str, str]) -> int | None:
    """Return the columns of a terminal, or the value of COLUMNS; `None`: unknown."""
    asked = environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        columns = os.get_terminal_size(descriptor).columns
    except OSError:
        return None
    return columns or None


def say(text: str) -> None:
    """Print a line of this package to stderr, because stdout belongs to the target."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # stderr is closed: a lost message must not end the target.
        return

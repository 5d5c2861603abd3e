"""Help and version of the whole program, without Click: its import takes four times as long as the start of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_memwatch._version import __version__
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAGRAPHS = (
    "Record the memory, CPU, I/O and GPU use of a command's whole process tree.",
    (
        "`otel-memwatch wrap -- python train.py` runs the command unchanged and leaves a record. "
        "Make reports and plots from it at any later time."
    ),
)
"""Description of the program."""

_OPTIONS = {"-V, --version": "Show the version and exit.", "-h, --help": "Show this message and exit."}

_WIDTH = 78
"""Columns of Click's help on every terminal of at least 80."""


def answer(arguments: Sequence[str], commands: Mapping[str, str], columns: int) -> str | None:
    """Return the text that the arguments request; `None`: Click has to answer.

    Args:
        arguments: of the program.
        commands: each command with its line.
        columns: width of the terminal.
    """
    if arguments in (["--version"], ["-V"]):
        return f"otel-memwatch, version {__version__}"
    if arguments not in (["--help"], ["-h"]) or columns < _WIDTH + 2:
        return None
    lines = ["Usage: otel-memwatch [OPTIONS] COMMAND [ARGS]..."]
    for paragraph in PARAGRAPHS:
        lines += ["", *_wrapped("  ", paragraph)]
    for title, rows in (("Options", _OPTIONS), ("Commands", commands)):
        lines += ["", f"{title}:"]
        width = max(map(len, rows))
        for name, line in rows.items():
            lines += _wrapped(f"  {name.ljust(width)}  ", line)
    return "\n".join(lines)


def _wrapped(start: str, text: str) -> Iterator[str]:
    """Break a text into lines; the first one begins with `start`, the others below the text."""
    line = start
    for word in text.split():
        space = " " if line.strip() and line[-1] != " " else ""
        if len(line) + len(space) + len(word) > _WIDTH:
            yield line
            line, space = " " * len(start), ""
        line += space + word
    yield line

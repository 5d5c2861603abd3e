"""The layout of the text report: sections, named facts, tables, paragraphs."""

from __future__ import annotations

from otel_memwatch.reports.formatting import cells, pad, table
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 110
"""Columns of a paragraph, and of a table unless its names are longer."""

_LABEL = 22
_INDENT = "  "


class Page:
    """Lines of text, put together from above to below."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def title(self, text: str) -> None:
        """The first line, underlined."""
        self._lines += [text, "=" * min(WIDTH, cells(text))]

    def section(self, text: str) -> None:
        """The heading of a part."""
        self._lines += ["", text, "-" * cells(text)]

    def fact(self, label: str, value: str) -> None:
        """One named value; nothing when the value is empty. Without a label it belongs to the one above."""
        if value:
            self._lines.append(f"{_INDENT}{pad(label, _LABEL)}{value}")

    def paragraph(self, text: str) -> None:
        """Running text, broken into lines."""
        self._lines += broken(text, _INDENT, _INDENT)

    def item(self, text: str) -> None:
        """One entry of a list."""
        self._lines += broken(text, f"{_INDENT}- ", f"{_INDENT}  ")

    def table(self, rows: Sequence[Sequence[str]], header: Sequence[str], right: str) -> None:
        """A table, see `formatting.table`."""
        self._lines += [_INDENT + line for line in table(rows, header, right)]

    def gap(self) -> None:
        """An empty line."""
        self._lines.append("")

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"


def broken(text: str, first: str, rest: str) -> list[str]:
    """The text in lines of at most `WIDTH` characters, which begin with `first` and then with `rest`.

    It is broken at blanks, and within words that are longer than a line.
    """
    lines: list[str] = []
    line, indent = "", first
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > WIDTH:
            lines.append(indent + line)
            line, indent = "", rest
        line = f"{line} {word}" if line else word
        while len(indent) + len(line) > WIDTH:
            room = WIDTH - len(indent)
            lines.append(indent + line[:room])
            line, indent = line[room:], rest
    return [*lines, indent + line] if line else lines

"""The layout of the text report: sections, named facts, tables, paragraphs."""

from __future__ import annotations

from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import cells, cut, pad, shorten, table

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 110
"""Columns of a paragraph in a file."""
_LEAST_WIDTH = 40
_NARROW = 70

_LABEL = 22
_NARROW_LABEL = 16
_LEAST_NAME = 12
_INDENT = "  "


class Page:
    """Lines of text, put together from above to below, for a terminal or a file."""

    def __init__(self, display: Display = FILE) -> None:
        self._lines: list[str] = []
        self._display = display
        self.width = max(_LEAST_WIDTH, display.width or WIDTH)
        """Columns of a paragraph."""

    def title(self, text: str) -> None:
        """The first line, underlined."""
        self._lines += [self._display.paint(text, "strong"), "=" * min(self.width, cells(text))]

    def section(self, text: str) -> None:
        """The heading of a part."""
        self._lines += ["", self._display.paint(text, "strong"), "-" * cells(text)]

    def fact(self, label: str, value: str, tone: str = "") -> None:
        """One named value; nothing when the value is empty. Without a label it belongs to the one above."""
        if not value:
            return
        label_width = _LABEL if self.width > _NARROW else _NARROW_LABEL
        indent = _INDENT + " " * label_width
        lines = [indent + value] if self._display.width is None else broken(value, indent, indent, self.width)
        head = _INDENT + self._display.paint(pad(label, label_width), "faint")
        for index, line in enumerate(lines):
            words = self._display.paint(line[len(indent) :], tone)
            self._lines.append((head if index == 0 else indent) + words)

    def paragraph(self, text: str) -> None:
        """Running text, broken into lines."""
        self._lines += broken(text, _INDENT, _INDENT, self.width)

    def item(self, text: str) -> None:
        """One entry of a list."""
        self._lines += broken(text, f"{_INDENT}- ", f"{_INDENT}  ", self.width)

    def table(
        self,
        rows: Sequence[Sequence[str]],
        header: Sequence[str],
        right: str,
        first_to_go: Sequence[str] = (),
        names: str = "",
    ) -> None:
        """A table, see `formatting.table`.

        On a terminal that is too narrow for it, it is without the columns `first_to_go`, then with shorter cells in the
        column `names`; figures are never shortened. What then still is too wide is cut at the terminal's end.
        """
        wanted = None if self._display.width is None else self.width - len(_INDENT)
        hidden: list[str] = []
        lines = table(rows, header, right)
        for name in first_to_go:
            if wanted is None or _widest(lines) <= wanted:
                break
            hidden.append(name)
            lines = table(rows, header, right, hidden)
        if wanted is not None and names and _widest(lines) > wanted:
            column = header.index(names)
            longest = max(cells(row[column]) for row in rows)
            room = max(_LEAST_NAME, longest - (_widest(lines) - wanted))
            rows = [[*row[:column], shorten(row[column], room), *row[column + 1 :]] for row in rows]
            lines = table(rows, header, right, hidden)
        head, *body = [line if wanted is None else cut(line, wanted) for line in lines]
        self._lines += [_INDENT + self._display.paint(head, "faint"), *(_INDENT + line for line in body)]

    def gap(self) -> None:
        """An empty line."""
        self._lines.append("")

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"


def _widest(lines: Sequence[str]) -> int:
    return max(map(cells, lines), default=0)


def broken(text: str, first: str, rest: str, width: int = WIDTH) -> list[str]:
    """The text in lines of at most `width` characters, which begin with `first` and then with `rest`.

    It is broken at blanks, and within words that are longer than a line.
    """
    lines: list[str] = []
    line, indent = "", first
    for word in text.split():
        if line and len(indent) + cells(line) + 1 + cells(word) > width:
            lines.append(indent + line)
            line, indent = "", rest
        line = f"{line} {word}" if line else word
        while len(indent) + cells(line) > width:
            room = width - len(indent)
            lines.append(indent + line[:room])
            line, indent = line[room:], rest
    return [*lines, indent + line] if line else lines

"""Page as plain text, for a terminal or a file."""

from __future__ import annotations

from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import cells, cut, pad, shorten, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.reports.pages import Columns

WIDTH = 110
"""Columns of a paragraph in a file."""
_LEAST_WIDTH = 40
_NARROW = 70

_LABEL = 22
_NARROW_LABEL = 16
_LEAST_NAME = 12
_MOST_NAME = 60
_INDENT = "  "


class TerminalPage:
    """Lines of text. On a terminal they fit its width, except for long words."""

    def __init__(self, display: Display = FILE, *, label_width: int = 0) -> None:
        self._lines: list[str] = []
        self._display = display
        self.width = max(_LEAST_WIDTH, display.width or WIDTH)
        """Columns of a paragraph."""
        self._label_width = label_width or (_LABEL if self.width > _NARROW else _NARROW_LABEL)

    def heading(self, text: str) -> None:
        """Add a title without a line below it."""
        self._lines.append(self._display.paint(shorten(text, self.width), "strong"))

    def title(self, text: str) -> None:
        """Add the first line, underlined."""
        self._lines += [self._display.paint(text, "strong"), "=" * min(self.width, cells(text))]

    def section(self, text: str) -> None:
        """Add the heading of a section, underlined."""
        self._lines += ["", self._display.paint(text, "strong"), "-" * cells(text)]

    def fact(self, label: str, value: str, tone: str = "") -> None:
        """Add a labelled value; on a terminal long ones continue in the next line, below the value."""
        if not value:
            return
        room = self.width - len(_INDENT) - self._label_width
        lines = [value] if self._display.width is None else _wrapped(value, room, whole_paths=True)
        head = _INDENT + self._display.paint(pad(label, self._label_width), "faint") if label else ""
        indent = _INDENT + " " * self._label_width
        for index, line in enumerate(lines):
            self._lines.append(((head if index == 0 else "") or indent) + self._display.paint(line, tone))

    def paragraph(self, text: str) -> None:
        """Add running text, broken into lines."""
        self._lines += (_INDENT + line for line in _wrapped(text, self.width - len(_INDENT)))

    def item(self, text: str) -> None:
        """Add an entry of a list."""
        first, *rest = _wrapped(text, self.width - len(_INDENT) - 2) or [""]
        self._lines += [f"{_INDENT}- {first}", *(f"{_INDENT}  {line}" for line in rest)]

    def table(self, rows: Sequence[Sequence[str]], columns: Columns) -> None:
        """Add a table.

        If the terminal is too narrow for it, omit the columns `first_to_go`, then shorten the cells of the column
        `names`. Figures are never shortened. Lines that are still too wide are cut at the edge of the terminal.
        """
        if not rows:
            return
        header, align, names = columns.header, columns.align, columns.names
        if names:
            column = header.index(names)
            rows = [[*row[:column], shorten(row[column], _MOST_NAME), *row[column + 1 :]] for row in rows]
        wanted = None if self._display.width is None else self.width - len(_INDENT)
        hidden: list[str] = []
        lines = table(rows, header, align)
        for name in columns.first_to_go:
            if wanted is None or _widest(lines) <= wanted:
                break
            hidden.append(name)
            lines = table(rows, header, align, hidden)
        if wanted is not None and names and _widest(lines) > wanted:
            longest = max(cells(row[column]) for row in rows)
            room = max(_LEAST_NAME, longest - (_widest(lines) - wanted))
            rows = [[*row[:column], shorten(row[column], room), *row[column + 1 :]] for row in rows]
            lines = table(rows, header, align, hidden)
        head, *body = [line if wanted is None else cut(line, wanted) for line in lines]
        self._lines += [_INDENT + self._display.paint(head, "faint"), *(_INDENT + line for line in body)]

    def gap(self) -> None:
        """Add an empty line."""
        self._lines.append("")

    def text(self) -> str:
        """Return the page, with a newline at its end."""
        return "\n".join(self._lines) + "\n"


def _widest(lines: Sequence[str]) -> int:
    return max(map(cells, lines), default=0)


def _wrapped(text: str, room: int, *, whole_paths: bool = False) -> list[str]:
    """Return the text in lines of at most `room` columns, broken at blanks and within longer words.

    `whole_paths`: never break a word with a slash, because people copy paths.
    """
    lines, line = [], ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) > room:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while cells(line) > room and not (whole_paths and "/" in line):
            lines.append(line[:room])
            line = line[room:]
    return [*lines, line] if line else lines

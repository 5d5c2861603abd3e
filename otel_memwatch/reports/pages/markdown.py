"""Page in GitHub-flavoured Markdown: for a job's page in CI and for comments on merge requests."""

from __future__ import annotations

import re

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, known_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.reports.pages import Columns


class MarkdownPage:
    """Markdown; facts are rows of a table with an empty header."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open = ""
        """Block that the next line may continue: "facts", "items" or empty."""

    def raw(self, *lines: str) -> None:
        """Add a block that is Markdown already."""
        self._open = ""
        self._lines += ["", *lines]

    def title(self, text: str) -> None:
        """Add a heading of level 3: the page is part of another one."""
        self.raw(f"### {escape(clean(text))}")

    def section(self, text: str) -> None:
        """Add a heading of level 4."""
        self.raw(f"#### {escape(clean(text))}")

    def fact(self, label: str, value: str, tone: str = "") -> None:
        """Add a row of two cells; emphasize both if the tone is "strong" or "bad"."""
        if not value:
            return
        if self._open != "facts":
            self.raw("| | |", "| --- | --- |")
            self._open = "facts"
        shown = [escape(clean(cell)) for cell in (label, value)]
        if tone in ("bad", "strong"):
            shown = [f"**{cell}**" if cell else "" for cell in shown]
        self._lines.append(f"| {' | '.join(shown)} |")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        if text:
            self.raw(escape(clean(text)))

    def item(self, text: str) -> None:
        """Add an entry of a list."""
        if self._open != "items":
            self.raw()
            self._open = "items"
        self._lines.append(f"- {escape(clean(text))}")

    def table(self, rows: Sequence[Sequence[str]], columns: Columns) -> None:
        """Add a table; GitHub scrolls one that is too wide."""
        used, strong = known_columns(rows, columns.header), escape(columns.strong)

        def row(cells: Sequence[str]) -> str:
            shown = (escape(clean(cells[i].strip())) for i in used)
            return f"| {' | '.join(f'**{cell}**' if strong and cell == strong else cell for cell in shown)} |"

        rule = " | ".join("---:" if columns.align[i] == "r" else "---" for i in used)
        self.raw(row(columns.header), f"| {rule} |", *map(row, rows))

    def fold(self, summary: str) -> None:
        """Begin a collapsed block under a line that opens it; `unfold` ends the block."""
        self.raw(f"<details><summary>{escape(summary)}</summary>")

    def unfold(self) -> None:
        """End a collapsed block."""
        self.raw("</details>")

    def gap(self) -> None:
        """Do nothing: blocks are separate in Markdown."""

    def text(self) -> str:
        """Return the page, with a newline at its end."""
        return "\n".join(self._lines).strip("\n") + "\n"


def escape(text: str) -> str:
    """Escape text for one cell of a table, which Markdown then shows unchanged."""
    return re.sub(r"([\\`*_\[\]<>|~#@!])", r"\\\1", text.replace("&", "&amp;"))

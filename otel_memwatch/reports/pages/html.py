"""Page in HTML: sections, lists of facts and tables, for a document that has a head and styles already."""

from __future__ import annotations

from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import known_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.reports.pages import Columns

_PHONE_COLUMNS = 4
"""Columns of figures that fit on a phone. It shows the rows of wider tables, and of those with names, as paragraphs."""


class HtmlPage:
    """HTML; the content of each section is an element with an id, which a script may replace."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pending: list[str] = []
        """Facts or items that are not in an element yet."""
        self._around = ""
        """Element for `_pending`: "dl" or "ul"."""
        self._in_section = False

    def raw(self, html: str) -> None:
        """Add a block that is HTML already."""
        self.gap()
        self._parts.append(html + "\n")

    def title(self, text: str) -> None:
        """Add the heading of the page."""
        self.raw(tag("h1", escaped(text)))

    def section(self, text: str) -> None:
        """Begin a section; its id is its heading without a number: "operations" for "Operations (12)"."""
        self._end_section()
        name = "".join(c if "a" <= c <= "z" else "-" for c in text.partition(" (")[0].lower())
        while "--" in name:
            name = name.replace("--", "-")
        heading = tag("h2", escaped(text), id=f"{name}-title")
        self.raw(f'<section aria-labelledby="{name}-title">\n{heading}\n<div id="{name}">')
        self._in_section = True

    def _end_section(self) -> None:
        self.gap()
        if self._in_section:
            self._parts.append("</div>\n</section>\n")
            self._in_section = False

    def _pend(self, around: str, html: str) -> None:
        if self._around != around:
            self.gap()
            self._around = around
        self._pending.append(html)

    def fact(self, label: str, value: str, tone: str = "") -> None:
        """Add an entry of a description list."""
        if value:
            term = tag("dt", escaped(label)) if label else ""
            self._pend("dl", term + tag("dd", escaped(value), class_=tone or None))

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        if text:
            self.raw(tag("p", escaped(text), class_="more"))

    def item(self, text: str) -> None:
        """Add an entry of a list."""
        self._pend("ul", tag("li", escaped(text)))

    def table(self, rows: Sequence[Sequence[str]], columns: Columns) -> None:
        """Add a table, which scrolls if the window is too narrow."""
        used = known_columns(rows, columns.header)

        def row(name: str, cells: Sequence[str]) -> str:
            shown = []
            for index in used:
                text = cells[index].lstrip(" ")
                # HTML would drop the blanks that indent a nested name.
                indent = "\u00a0" * (len(cells[index]) - len(text))
                classes = ["number"] if columns.align[index] == "r" else []
                if columns.strong and cells[index] == columns.strong:
                    classes.append("strong")
                if columns.header[index] in columns.wide:
                    classes.append("wide")
                # A heading without text would be announced as one.
                kind = name if text else "td"
                scope = "col" if kind == "th" else None
                label = columns.header[index] if stacked and name == "td" and "number" in classes else None
                shown.append(
                    tag(
                        kind,
                        indent + escaped(text),
                        scope=scope,
                        class_=" ".join(classes) or None,
                        data_label=label,
                    )
                )
            return tag("tr", "".join(shown))

        narrow = [index for index in used if columns.header[index] not in columns.wide]
        stacked = bool(columns.names) or len(narrow) > _PHONE_COLUMNS
        head, body = row("th", columns.header), "\n".join(row("td", cells) for cells in rows)
        table = tag("table", tag("thead", head) + tag("tbody", body), class_="stacked" if stacked else None)
        # The tab key reaches it, as it may have to scroll.
        label = ", ".join(text for text in columns.header if text)
        self.raw(tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=label))

    def gap(self) -> None:
        """End the list that is open, if any."""
        if self._pending:
            attributes = {"class_": "facts"} if self._around == "dl" else {}
            self._parts.append(tag(self._around, "\n".join(self._pending), **attributes) + "\n")
        self._pending, self._around = [], ""

    def text(self) -> str:
        """Return the HTML, every element closed."""
        self._end_section()
        return "".join(self._parts)

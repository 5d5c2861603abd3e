"""The interface that every section writes to; terminal, Markdown and HTML implement it.

A section is a function of `(run, page)`. It groups the facts; the page formats them.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Columns(NamedTuple):
    """Columns of a table, and their treatment if the page is too narrow."""

    header: Sequence[str]
    """A heading for each column."""
    align: str
    """An "r" for each column that is aligned to the right, else "l"."""
    first_to_go: Sequence[str] = ()
    """Columns to omit if the page is too narrow, in this order."""
    names: str = ""
    """Column with cells that may be shortened."""
    strong: str = ""
    """Text of the cells that are emphasized."""
    wide: Sequence[str] = ()
    """Columns that an HTML page omits on a phone."""


if TYPE_CHECKING:

    class Page(Protocol):
        """A document that is written from top to bottom."""

        def title(self, text: str) -> None:
            """Add the heading of the whole page."""

        def section(self, text: str) -> None:
            """Add the heading of a section."""

        def fact(self, label: str, value: str, tone: str = "") -> None:
            """Add a labelled value; omit it if the value is empty.

            Args:
                label: an empty label continues the fact before.
                value: never shortened.
                tone: one of `terminal.TONES`.

            """

        def paragraph(self, text: str) -> None:
            """Add running text; omit it if it is empty."""

        def item(self, text: str) -> None:
            """Add an entry of a list."""

        def table(self, rows: Sequence[Sequence[str]], columns: Columns) -> None:
            """Add a table of texts without the columns that are empty in every row."""

        def gap(self) -> None:
            """Separate blocks if the page does not do so by itself."""

"""The interface that every section writes to; terminal, Markdown and HTML implement it.

A section is a function of `(run, page)`. It groups the facts; the page formats them.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    def table(
        self,
        rows: Sequence[Sequence[str]],
        header: Sequence[str],
        right: str,
        *,
        first_to_go: Sequence[str] = (),
        names: str = "",
        strong: str = "",
    ) -> None:
        """Add a table without the columns that are empty in every row.

        Args:
            rows: cells as text.
            header: a heading for each column.
            right: an "r" for each column that is aligned to the right, else "l".
            first_to_go: columns to omit if the page is too narrow, in this order.
            names: column with cells that may be shortened.
            strong: cells with this text are emphasized.

        """

    def gap(self) -> None:
        """Separate blocks if the page does not do so by itself."""

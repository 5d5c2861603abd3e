"""What the monitor says to the person."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Messages:
    """Prints what the person should know, and keeps what went wrong.

    Args:
        write: prints one message; lines to stderr, since stdout is the target's.

    Attributes:
        over_budget: one sentence for each figure that was more than it may be.
        problems: one sentence for each thing that kept the record from being whole; `--strict` asks for none.

    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.problems: list[str] = []
        self.over_budget: list[str] = []
        self._write = write

    def info(self, text: str) -> None:
        """Prints something as it is."""
        self._write(text)

    def over(self, sentence: str) -> None:
        """Keeps, and prints nothing of, what was more than it may be: the summary says so."""
        self.over_budget.append(sentence)

    def problem(self, sentence: str) -> None:
        """Prints, under our name, what keeps the record from being whole, and keeps it."""
        self.problems.append(sentence)
        self._write(f"otel-memwatch: {sentence}")

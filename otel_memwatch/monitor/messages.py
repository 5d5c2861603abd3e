"""Messages of the monitor to the user."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Messages:
    """Messages to the user, and the list of problems.

    Args:
        write: prints one message, to stderr: stdout belongs to the target.

    Attributes:
        over_budget: one sentence for each figure that exceeds its budget.
        problems: one sentence for each reason why the record is incomplete; `--strict` accepts none.

    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.problems: list[str] = []
        self.over_budget: list[str] = []
        self._write = write

    def info(self, text: str) -> None:
        """Print a text unchanged."""
        self._write(text)

    def over(self, sentence: str) -> None:
        """Keep a figure that exceeds its budget. The summary prints it."""
        self.over_budget.append(sentence)

    def problem(self, sentence: str) -> None:
        """Print why the record is incomplete, after our name, and keep it."""
        self.problems.append(sentence)
        self._write(f"otel-memwatch: {sentence}")

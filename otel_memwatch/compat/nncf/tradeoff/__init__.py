"""Accuracy against footprint of compressed models: a Markdown table and a plot from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from otel_memwatch.compat.nncf.tradeoff.picture import figure
from otel_memwatch.compat.nncf.tradeoff.results import RUN, TradeoffError, read
from otel_memwatch.compat.nncf.tradeoff.table import markdown

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

__all__ = ["RUN", "TradeoffError", "figure", "markdown", "read", "write"]


def write(
    path: str | os.PathLike[str], directory: str | os.PathLike[str] | None, *, measured: bool = False
) -> tuple[Path, Path]:
    """Writes `<stem>.md` and `<stem>.png` into `directory` (default: the file's own), which is made if need be.

    Everything is computed before anything is written. Raises `TradeoffError`, also where nothing can be written.
    """
    path = Path(path)
    tradeoff = read(path, measured=measured)
    text, drawn = markdown(tradeoff), figure(tradeoff)
    target = Path(directory) if directory else path.parent
    table, image = target / f"{path.stem}.md", target / f"{path.stem}.png"
    try:
        target.mkdir(parents=True, exist_ok=True)
        table.write_text(text, encoding="utf-8")
        with image.open("wb") as file:
            _save(drawn, file)
    except OSError as error:
        raise TradeoffError(f"{error.filename or target} cannot be written: {error.strerror}.") from None
    return table, image


def _save(drawn: Figure, file: IO[Any]) -> None:
    drawn.savefig(file, format="png", dpi=100)

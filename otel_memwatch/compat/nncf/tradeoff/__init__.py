"""Trade-off between accuracy and footprint of compressed models: a Markdown table and a plot from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.compat.nncf.tradeoff.table import markdown
from otel_memwatch.compat.nncf.tradeoff.tradeoff_plot import figure
from otel_memwatch.compat.nncf.tradeoff.variants import RUN, TradeoffError, TradeoffFileError, read

if TYPE_CHECKING:
    import os

__all__ = ["RUN", "TradeoffError", "figure", "markdown", "read", "visualize", "write"]


def write(
    path: str | os.PathLike[str], directory: str | os.PathLike[str] | None, *, measured: bool = False
) -> tuple[Path, Path]:
    """Write `<stem>.md` and `<stem>.png` into `directory` (default: that of the file), created if necessary.

    Everything is computed before anything is written. Raises `TradeoffError`, also if writing fails.
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
            drawn.savefig(file, format="png", dpi=100)
    except OSError as error:
        raise TradeoffFileError(error, error.filename or target, "written") from None
    return table, image


def visualize(input_file: str | os.PathLike[str], output_dir: str | os.PathLike[str] | None = "") -> None:
    """Write `<stem>.md` and `<stem>.png` into `output_dir` (default: that of the file), and print the path.

    Raises `TradeoffError`, a `RuntimeError`, with one sentence for an invalid file; also an `OSError` if a file cannot be read or written.
    """
    _, image = write(input_file, output_dir)
    print("Saving image to :", image)  # noqa: T201 - NNCF's script prints it too

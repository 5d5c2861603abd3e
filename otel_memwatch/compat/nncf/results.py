"""`visualize`: table and plot of compression results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.compat.nncf.tradeoff import write

if TYPE_CHECKING:
    import os


def visualize(input_file: str | os.PathLike[str], output_dir: str | os.PathLike[str] | None = "") -> None:
    """Writes `<stem>.md` and `<stem>.png` into `output_dir`, by default beside the file.

    Raises `TradeoffError`, a `RuntimeError`, with one sentence for a file that cannot be used.
    """
    _, image = write(input_file, output_dir)
    print("Saving image to :", image)  # noqa: T201 - as it has always been told

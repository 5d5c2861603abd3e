"""`tradeoff`: accuracy of compressed models against their memory footprint."""

from __future__ import annotations

import click

from otel_memwatch.compat.nncf.tradeoff import write
from otel_memwatch.errors import UsageError


@click.command(no_args_is_help=True)
@click.argument("csv_file", metavar="[CSV]", required=False)
@click.option(
    "-i", "--input-file", "--input_file", "input_file", metavar="CSV", help="Same as the argument CSV."
)
@click.option(
    "-o",
    "--output-dir",
    "--output_dir",
    "output_dir",
    metavar="DIR",
    help="Output directory. Default: beside the CSV file.",
)
@click.option(
    "--footprint",
    type=click.Choice(["size", "peak"]),
    default="size",
    show_default=True,
    help="Model size from the file, or measured peak of the run in column 'run'. Several runs, in one directory or "
    "separated by ;, give error bars.",
)
def command(csv_file: str | None, input_file: str | None, output_dir: str | None, footprint: str) -> None:
    """Write a table (.md) and a plot (.png) of accuracy against footprint from the rows of CSV.

    The row of the mode fp32 is the baseline. Run directories are relative to the CSV file.
    """
    if (csv_file is None) == (input_file is None):
        raise UsageError("Give one CSV file.", "as in: otel-memwatch tradeoff results.csv --output-dir DIR")
    table, image = write(csv_file or input_file or "", output_dir, measured=footprint == "peak")
    click.echo(f"Table: {table}\nImage: {image}")

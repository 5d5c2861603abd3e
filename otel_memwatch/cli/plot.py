"""`plot`: recorded runs as a picture."""

from __future__ import annotations

import math
from pathlib import Path

import click

from otel_memwatch.config import parse_seconds, parsed
from otel_memwatch.errors import UsageError
from otel_memwatch.record.format import PHASES_FILE, PLOT_FILE
from otel_memwatch.reports.output import put
from otel_memwatch.reports.plot import STYLES
from otel_memwatch.run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.ranks.group_commands import draw_group
from otel_memwatch.wings.ranks.groups import find_group

if TYPE_CHECKING:
    from otel_memwatch.reports import Options

_OLD_STYLE = "phases"
"""Style of an older tool (`compat.qefficient`), accepted by name."""
_MIN_INCHES, _MAX_INCHES = 2.0, 60.0


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "-o", "--output", metavar="FILE", help="Output file: .png, .pdf or .svg. [default: memory.png in RUN]"
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option("--title", metavar="TEXT", help="Title. [default: the command]")
@click.option(
    "--from",
    "begin",
    metavar="SECONDS",
    help="Start of the time range: seconds since the start of the run (or 2min, 1h).",
)
@click.option("--to", "end", metavar="SECONDS", help="End of the time range.")
@click.option("--dark", is_flag=True, help="Use a dark background.")
@click.option(
    "--size",
    metavar="WIDTH[xHEIGHT]",
    help="Size in inches. [default: 12 wide; the height depends on the content]",
)
@click.option(
    "--dpi",
    type=click.IntRange(30, 1200),
    metavar="NUMBER",
    help="Dots per inch of a .png file. [default: 150]",
)
@click.option("--style", type=click.Choice((*STYLES, _OLD_STYLE)), default=STYLES[0], hidden=True)
def command(
    runs: tuple[str, ...],
    *,
    output: str | None,
    force: bool,
    title: str | None,
    begin: str | None,
    end: str | None,
    dark: bool,
    size: str | None,
    dpi: int | None,
    style: str,
) -> None:
    """Draw the run directory RUN: memory, CPU, I/O, GPUs and operations over time.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. Several runs share one picture, aligned at their
    starts. Panels without data are omitted. For a group, the picture shows the memory of all ranks and of each rank.
    """
    group = find_group(runs[0]) if len(runs) == 1 else None
    if group is not None:
        draw_group(group, output, force=force, title=title, dark=dark, size=_inches(size), dpi=dpi)
        return
    found = [load(find_run(run)) for run in runs or (None,)]
    options: Options = {
        "style": style,
        "title": title,
        "begin": parsed(parse_seconds, begin, "--from"),
        "end": parsed(parse_seconds, end, "--to"),
        "dark": dark,
        "size": _inches(size),
        "dpi": dpi,
        "others": found[1:],
    }
    name, file = (_OLD_STYLE, PHASES_FILE) if style == _OLD_STYLE else ("plot", PLOT_FILE)
    if output is not None:
        put(name, found[0], output, force=force, **options)
    elif len(found) > 1:
        raise UsageError("Say where a picture of several runs is to go.", "with -o FILE")
    else:
        put(name, found[0], str(Path(found[0].path) / file), force=True, **options)


def _inches(text: str | None) -> tuple[float, float | None] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    try:
        numbers = [float(width), *([float(height)] if height else [])]
    except ValueError:
        numbers = []
    if not numbers or not all(
        math.isfinite(number) and _MIN_INCHES <= number <= _MAX_INCHES for number in numbers
    ):
        raise UsageError(f"--size: {text!r} is no size in inches.", "as in 12 or 12x7")
    return numbers[0], numbers[1] if len(numbers) > 1 else None

"""Live view on a terminal, drawn with rich. It restores the terminal, however it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import size
from otel_memwatch.wings.live import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from otel_memwatch.wings.live.live_run import LiveFigures, LiveRun


_STYLES = {"strong": "bold", "bad": "bold red", "warning": "yellow", "": ""}
_PROCESSES = 6
_OPERATIONS = 6
_DEVICES = 4
_SHARE = 0.5
"""Part of the time between two frames for reading a long record."""
_LEAST_CURVE, _MOST_CURVE = 4, 14


class _Leave(Exception):  # noqa: N818 - a request to exit, not an error
    """Signal that asks the view to exit; the handlers on the way out restore the terminal."""

    def __init__(self, number: int) -> None:
        self.number = number


def show(run: LiveRun, every: float) -> int | None:
    """Show the run until it ends or the user leaves. Return the signal that ended the view, or `None`."""
    console = Console()
    blocks = "utf" in (console.encoding or "").lower()
    with _signals(), _keys() as pressed:
        try:
            # Two frames a second are few enough for a slow connection; rich writes each in one piece.
            with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
                while True:
                    figures = run.look(_SHARE * every)
                    live.update(_frame(run, figures, console, blocks=blocks), refresh=True)
                    if figures.state != "running" or pressed(every):
                        return None
        except _Leave as leave:
            return leave.number


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Turn signals that end a program into an exception, which lets every `with` block clean up."""

    def leave(number: int, _: Any) -> None:
        raise _Leave(number)

    before = {
        number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds or until q is typed, and returns whether it was typed.

    Keys are not echoed meanwhile, and Ctrl-Z is disabled.
    """
    import termios
    import tty

    stdin = sys.stdin.fileno()
    try:
        kept = termios.tcgetattr(stdin)
    except termios.error:
        kept = None

    def pressed(seconds: float) -> bool:
        # Use select: poll() on macOS does not support terminals.
        ready, _, _ = select.select([stdin] if kept is not None else [], [], [], seconds)
        return bool(ready) and os.read(stdin, 16)[:1].lower() in (b"q", b"\x1b", b"")

    if kept is not None:
        tty.setcbreak(stdin)
        # Disable Ctrl-Z: a stopped program would leave the alternate screen and a keyboard without echo to the shell.
        mode = termios.tcgetattr(stdin)
        mode[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(stdin, termios.TCSANOW, mode)
    try:
        yield pressed
    finally:
        if kept is not None:
            termios.tcsetattr(stdin, termios.TCSADRAIN, kept)


def _frame(run: LiveRun, figures: LiveFigures, console: Console, *, blocks: bool) -> RenderableType:
    width, height = console.size
    facts = Table.grid(padding=(0, 2))
    for fact in lines.facts(figures, run.last_tick_wall, run.interval):
        facts.add_row(Text(fact.label, style="dim"), Text(fact.text, style=_STYLES[fact.tone]))
    parts: list[RenderableType] = [
        Text(lines.title(figures, width), style="bold", no_wrap=True),
        Text(lines.state(figures), style="dim"),
        Text(),
        facts,
    ]
    below = [
        *_section("processes", _processes(figures, width)),
        *_section("open", _texts(lines.operations(figures), _OPERATIONS)),
        *_section("GPU", _texts(lines.devices(figures), _DEVICES)),
        Text("Press q to leave; the run continues", style="dim"),
    ]
    used = sum(len(console.render_lines(part, pad=False)) for part in [*parts, *below]) + 1
    rows = min(_MOST_CURVE, height - used)
    drawn = (
        curve(figures.curve, figures.seconds, figures.limit, width, rows, blocks=blocks)
        if rows >= _LEAST_CURVE
        else []
    )
    picture = [Text(), *(Text(line, style="green", no_wrap=True) for line in drawn)] if drawn else []
    return Group(*parts, *picture, *below)


def _section(name: str, content: RenderableType | None) -> list[RenderableType]:
    return [] if content is None else [Text(), Text(name, style="dim"), content]


def _texts(texts: list[str], most: int) -> RenderableType | None:
    if not texts:
        return None
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return Group(*(Text(f"  {text}", no_wrap=True, overflow="ellipsis") for text in [*texts[-most:], *more]))


def _processes(figures: LiveFigures, width: int) -> RenderableType | None:
    rows = lines.process_rows(figures, _PROCESSES, max(20, width - 26))
    if not rows:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = " .:-=+*#"
_NEAR = 3.0
"""Largest ratio of limit to largest value for which the limit sets the scale; above it the curve would be flat."""
_LABEL = 10


def curve(
    points: Sequence[tuple[float, int]],
    seconds: float,
    limit: int | None,
    width: int,
    height: int,
    *,
    blocks: bool,
) -> list[str]:
    """Return the lines of the curve, with the scale to the left; none without points.

    Each column shows the largest value of its stretch of time.

    Args:
        points: seconds and bytes, by time.
        seconds: time at the right end.
        limit: memory limit; it sets the scale if it is near the curve.
        width: number of columns, including the scale.
        height: number of lines.
        blocks: true if the terminal shows block characters; else use ASCII.

    """
    columns = width - _LABEL - 1
    if not points or columns < 8 or height < 2:
        return []
    # The largest value of each column. A stretch longer than a column fills several.
    heights: list[int | None] = [None] * columns
    seconds = max(seconds, 1e-9)
    for index, (begin, value) in enumerate(points):
        end = points[index + 1][0] if index + 1 < len(points) else seconds
        first = min(columns - 1, int(begin / seconds * columns))
        last = min(columns - 1, max(first, int(end / seconds * columns) - 1))
        for column in range(first, last + 1):
            heights[column] = max(value, heights[column] or 0)
    most = max(value for _, value in points)
    top = limit if limit is not None and most > 0 and limit <= _NEAR * most else most
    levels = _BLOCKS if blocks else _LETTERS
    steps = len(levels) - 1
    lines = []
    for row in range(height - 1, -1, -1):
        text = ""
        for most_here in heights:
            filled = 0.0 if most_here is None or top <= 0 else most_here / top * height - row
            text += levels[max(0, min(steps, round(filled * steps)))]
        label = size(top) if row == height - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>{_LABEL}} {text}".rstrip())
    return lines

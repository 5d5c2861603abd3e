"""The view on a terminal, drawn with rich; it leaves the terminal as it was, whatever ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from otel_memwatch.wings.live import lines
from otel_memwatch.wings.live.curve import curve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from otel_memwatch.wings.live.live_run import LiveFigures, LiveRun

_STYLES = {"strong": "bold", "bad": "bold red", "warning": "yellow", "": ""}
_PROCESSES = 6
_OPERATIONS = 6
_DEVICES = 4
_SHARE = 0.5
"""Part of the time between two frames in which a long record is read."""
_LEAST_CURVE, _MOST_CURVE = 4, 14


class _Leave(Exception):  # noqa: N818 - no error: somebody wants us gone
    """A signal asked us to end; the way out restores the terminal."""

    def __init__(self, number: int) -> None:
        self.number = number


def show(run: LiveRun, every: float) -> int | None:
    """Shows the run until it ends or somebody leaves; gives the signal that ended us, `None` where there was none."""
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
    """Turns the signals that end a program into an exception, so that what stands in `with` is undone."""

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
    """Gives what waits so many seconds, or until q is typed, and says whether it was.

    Keys are not shown meanwhile; Ctrl-Z stops us with the screen and the keyboard as they were.
    """
    import termios
    import tty

    stdin = sys.stdin.fileno()
    try:
        kept = termios.tcgetattr(stdin)
    except termios.error:
        kept = None

    def pressed(seconds: float) -> bool:
        # Not poll: that of macOS does not know terminals.
        ready, _, _ = select.select([stdin] if kept is not None else [], [], [], seconds)
        return bool(ready) and os.read(stdin, 16)[:1].lower() in (b"q", b"\x1b", b"")

    if kept is not None:
        tty.setcbreak(stdin)
        # A stopped program would leave the other screen and a keyboard without echo to the shell: Ctrl-Z ends nothing here.
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
    parts: list[RenderableType] = [
        Text(lines.title(figures, width), style="bold", no_wrap=True),
        Text(lines.state(figures), style="dim"),
        Text(),
        _facts(run, figures),
    ]
    below = [
        *_section("processes", _processes(figures, width)),
        *_section("open", _texts(lines.operations(figures), _OPERATIONS)),
        *_section("GPU", _texts(lines.devices(figures), _DEVICES)),
        Text("q leaves; the run goes on", style="dim"),
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


def _facts(run: LiveRun, figures: LiveFigures) -> Table:
    table = Table.grid(padding=(0, 2))
    for fact in lines.facts(figures, run.last_tick_wall, run.interval):
        table.add_row(Text(fact.label, style="dim"), Text(fact.text, style=_STYLES[fact.tone]))
    return table


def _section(name: str, content: RenderableType | None) -> list[RenderableType]:
    return [] if content is None else [Text(), Text(name, style="dim"), content]


def _texts(told: list[str], most: int) -> RenderableType | None:
    if not told:
        return None
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return Group(*(Text(f"  {text}", no_wrap=True, overflow="ellipsis") for text in [*told[-most:], *more]))


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

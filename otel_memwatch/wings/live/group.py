"""Live view of a group: current memory, peak so far and state of each rank, and the sum of current memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_memwatch.reports.output import print_text
from otel_memwatch.text import clean, count, duration, peak_figure, shorten, size, table
from otel_memwatch.wings.live.live_run import LiveRun
from otel_memwatch.wings.ranks.group_text import missing

if TYPE_CHECKING:
    from otel_memwatch.wings.live.live_run import LiveFigures
    from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup

SHOWN = 16
"""Ranks in the table: failed ranks, then those with the largest peaks so far."""
_HEADER = ("rank", "host", "now", "peak so far", "in", "state")


class LiveGroup:
    """Figures of all ranks of a group; each update reads only new lines."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._runs = [(rank, LiveRun(rank.run.path)) for rank in group.ranks]

    def look(self) -> list[tuple[Rank, LiveFigures]]:
        """Return the current figures of each run."""
        return [(rank, run.look()) for rank, run in self._runs]

    def lines(self, looked: list[tuple[Rank, LiveFigures]]) -> list[str]:
        """Return the figures as lines of text."""
        group = self._group
        running = [one for _, one in looked if one.state == "running"]
        # Each size is from the last sample of its run, so the sum is approximate; the report has bounds.
        now = sum(one.now or 0 for rank, one in looked if one.state == "running" and not rank.inside)
        ranked = [(rank, one) for rank, one in looked if rank.rank is not None] or looked
        of = f" of {group.size}" if group.size else ""
        lines = [
            f"group {clean(group.name)}: {count(len(ranked), 'rank')}{of} on {count(len(group.hosts), 'host')}, {len(running)} running",
            f"now together   about {size(now)}, {duration(max((one.seconds for _, one in looked), default=0.0))} after the start",
        ]
        if words := missing(group):
            lines.append(f"missing        {words}")
        rows = []
        for rank, one in sorted(ranked, key=_order)[:SHOWN]:
            open_now = one.operations[-1].name if one.operations else ""
            rows.append(
                [
                    shorten(rank.short, 40),
                    shorten(clean(rank.host), 24),
                    size(one.now) if one.state == "running" else "-",
                    peak_figure(one.peaks.tree),
                    shorten(clean(open_now), 28) or "-",
                    "running" if one.state == "running" else shorten(clean(one.ending.reason), 36),
                ]
            )
        lines += ["", *table(rows, _HEADER, "rlrrll")]
        if len(ranked) > SHOWN:
            lines.append(f"and {len(ranked) - SHOWN} more, with smaller peaks")
        return lines


def _order(looked: tuple[Rank, LiveFigures]) -> tuple[bool, float]:
    """Return a sort key: failed ranks first, then those with the largest peaks so far."""
    _, figures = looked
    failed = figures.state == "incomplete" or figures.ending.bad
    return not failed, -(figures.peaks.tree.bytes if figures.peaks.tree is not None else 0)


def show(group: RankGroup, every: float, *, once: bool) -> None:
    """Show the group until all runs have ended, or once. Ctrl-C leaves; the runs continue."""
    live = LiveGroup(group)
    if once:
        print_text("\n".join(live.lines(live.look())) + "\n")
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False, transient=True) as screen:
        while True:
            looked = live.look()
            screen.update(
                Text(
                    "\n".join([*live.lines(looked), "", "Press Ctrl-C to leave; the runs continue"]),
                    no_wrap=True,
                ),
                refresh=True,
            )
            if all(figures.state != "running" for _, figures in looked):
                break
            time.sleep(every)
    print_text("\n".join(live.lines(live.look())) + "\n")

"""A group while it goes on: what each rank needs now, who has most, who has ended, and the sum of what they have now."""

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
"""Ranks in the table: those with the largest peaks so far, and those that have ended badly."""
_HEADER = ("rank", "host", "now", "peak so far", "in", "state")


class LiveGroup:
    """Looks at all ranks of a group; each look reads what was written since the one before."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._runs = [(rank, LiveRun(rank.run.path)) for rank in group.ranks]

    def look(self) -> list[tuple[Rank, LiveFigures]]:
        """What is known now of each run."""
        return [(rank, run.look()) for rank, run in self._runs]

    def lines(self, looked: list[tuple[Rank, LiveFigures]]) -> list[str]:
        """The look in lines."""
        group = self._group
        running = [one for _, one in looked if one.state == "running"]
        # A sum of sizes a tick old each, at no certain instant: the report has the bounds.
        now = sum(one.now or 0 for rank, one in looked if one.state == "running" and not rank.inside)
        ranked = [(rank, one) for rank, one in looked if rank.rank is not None] or looked
        of = f" of {group.size}" if group.size else ""
        told = [
            f"group {clean(group.name)}: {count(len(ranked), 'rank')}{of} on {count(len(group.hosts), 'host')}, {len(running)} running",
            f"now together   about {size(now)}, {duration(max((one.seconds for _, one in looked), default=0.0))} after the start",
        ]
        if words := missing(group):
            told.append(f"missing        {words}")
        shown = sorted(ranked, key=_order)[:SHOWN]
        told += ["", *table([_row(rank, one) for rank, one in shown], _HEADER, "rlrrll")]
        if len(ranked) > SHOWN:
            told.append(f"and {len(ranked) - SHOWN} more, with less")
        return told


def _order(looked: tuple[Rank, LiveFigures]) -> tuple[bool, float]:
    _, figures = looked
    return not _ended_badly(figures), -(figures.peaks.tree.bytes if figures.peaks.tree is not None else 0)


def _ended_badly(figures: LiveFigures) -> bool:
    ending = figures.ending
    return figures.state == "incomplete" or bool(ending.exit_code or ending.signal or ending.oom_kills)


def _row(rank: Rank, figures: LiveFigures) -> list[str]:
    open_now = figures.operations[-1].name if figures.operations else ""
    return [
        "all" if rank.rank is None else str(rank.rank),
        shorten(clean(rank.host), 24),
        size(figures.now) if figures.state == "running" else "-",
        peak_figure(figures.peaks.tree),
        shorten(clean(open_now), 28) or "-",
        "running" if figures.state == "running" else shorten(clean(figures.ending.reason), 36),
    ]


def show(group: RankGroup, every: float, *, once: bool) -> None:
    """Shows the group until all have ended, or once. Ctrl-C leaves; the ranks go on."""
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
                Text("\n".join([*live.lines(looked), "", "Ctrl-C leaves; the runs go on"]), no_wrap=True),
                refresh=True,
            )
            if all(figures.state != "running" for _, figures in looked):
                break
            time.sleep(every)
    print_text("\n".join(live.lines(live.look())) + "\n")

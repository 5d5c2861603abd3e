"""Report of a group: command, memory of all ranks together, hosts, ranks, and the first rank that failed.

The sections write to any page; `group_page` uses them too.
"""

from __future__ import annotations

import math
import time

from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    certainty,
    clean,
    command_line,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
    size_range,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.reports.pages import Page
    from otel_memwatch.wings.ranks.rank_group import RankGroup

SHOWN = 24
"""Ranks in the table of the text: the largest and those that failed. The JSON has all."""
_NAMED = 20
"""Most rank numbers in a sentence."""


def text(group: RankGroup, display: Display = FILE) -> str:
    """Return the report, with a newline at its end."""
    page = TerminalPage(display)
    page.title(f"otel-memwatch: group {clean(group.name)}")
    what_ran(group, page)
    page.section("Memory")
    memory(group, page)
    hosts(group, page)
    page.section("Ranks")
    ranks(group, page)
    earlier_attempts(group, page)
    return page.text()


def what_ran(group: RankGroup, page: Page) -> None:
    """Write command, ranks and result."""
    page.fact("command", command_line(group.command) or "unknown")
    number = count(len(group.numbered), "rank" if group.numbered[0].rank is not None else "run")
    of = f" of {group.size}" if group.size and group.size != len(group.numbered) else ""
    launcher = f", started by {clean(group.launcher)}" if group.launcher not in ("", "given", "env") else ""
    page.fact("ranks", f"{number}{of} on {count(len(group.hosts), 'host')}{launcher}")
    page.fact("also called", ", ".join(map(clean, group.more)))
    page.fact("started", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(group.started)))
    page.fact("duration", duration(group.seconds) + (" so far" if group.state == "running" else ""))
    page.fact("missing", missing(group), "bad")
    death, words = group.first_death, ""
    if death is not None:
        words = f"{death.rank.label} on {clean(death.rank.host)}, {duration(death.at)} after the start: {clean(death.rank.run.ending.reason)}"
        if death.operation is not None:
            words += f", during {shorten(clean(death.operation), 40)}"
        if death.others:
            others = ", ".join(rank.label for rank in death.others[:_NAMED])
            others += " ..." if len(death.others) > _NAMED else ""
            stopped = any(rank.run.state == "incomplete" for rank in (death.rank, *death.others))
            why = "a record stops early" if stopped else "clocks differ between hosts"
            words += f". It may have been {others} too: {why}"
    page.fact("failed first", words, "bad")
    if len(group.dead) > 1:
        numbers = [rank.rank for rank in group.dead if rank.rank is not None]
        page.fact("failed", _numbers(numbers) if numbers else count(len(group.dead), "run"), "bad")
    page.fact("result", "" if group.dead or group.state == "running" else "exit code 0 for all")


def missing(group: RankGroup) -> str:
    """Name the ranks without a record; "" if there are none."""
    return f"{_numbers(group.missing)}: no record" if group.missing else ""


def _numbers(ranks: Sequence[int]) -> str:
    """Return the numbers in order, sequences abbreviated: ranks 1, 3-7."""
    ordered = sorted(ranks)
    parts: list[str] = []
    begin = 0
    for index in range(1, len(ordered) + 1):
        if index < len(ordered) and ordered[index] == ordered[index - 1] + 1:
            continue
        first, last = ordered[begin], ordered[index - 1]
        parts.append(str(first) if first == last else f"{first}{'-' if last > first + 1 else ' and '}{last}")
        begin = index
    named = ", ".join(parts[:_NAMED]) + (f" and more, {len(ordered)} in total" if len(parts) > _NAMED else "")
    return f"rank {named}" if len(ordered) == 1 else f"ranks {named}"


def memory(group: RankGroup, page: Page) -> None:
    """Write the memory of all ranks together, and the largest rank."""
    together, largest, median = group.together, group.by_memory(), group.median
    at = "" if together.peak.at is None else f" at {duration(together.peak.at)}"
    page.fact("all ranks", peak_sentence(together.peak, source=False) + at, "strong")
    page.fact(
        "",
        "sum at the worst instant, not of peaks at different times"
        if len(together.hosts) == 1
        else "sum of the hosts' own peaks, each at the worst instant of its host",
    )
    if group.state != "finished":
        page.fact("", "a lower bound: some records are incomplete")
    if group.missing:
        page.fact("", f"without {_numbers(group.missing)}")
    if not largest:
        return
    rank, value = largest[0]
    operation = rank.peak.operation if rank.peak is not None else None
    where = f", during {shorten(clean(operation), 40)}" if operation else ""
    page.fact(
        "largest rank", f"{rank.label} on {clean(rank.host)}: {peak_sentence(rank.peak, source=False)}{where}"
    )
    if len(largest) > 1 and median:
        page.fact(
            "skew",
            f"largest {value / median:.2f} times the median of {size(median)}; smallest {size(largest[-1][1])} ({largest[-1][0].label})",
        )


def hosts(group: RankGroup, page: Page, most: int = SHOWN) -> None:
    """Write a section with the memory of each host; nothing for one host."""
    listed = group.together.hosts
    if len(listed) < 2 and len(group.hosts) < 2:
        return
    page.section("Hosts")
    rows = [
        [
            shorten(clean(host.host), 40),
            str(host.runs),
            f">= {size(host.low)}" if math.isinf(host.high) else size_range(host.low, host.high, "-"),
        ]
        for host in sorted(listed, key=lambda one: -one.low)[:most]
    ]
    page.table(rows, Columns(["host", "runs", "at one instant"], "lrr", names="host"))
    if len(listed) > most:
        page.paragraph(f"{count(len(listed) - most, 'smaller host')}.")


def ranks(group: RankGroup, page: Page, most: int = SHOWN) -> None:
    """Write a table of the ranks: peak, time, operation, GPU and result."""
    wanted = [*group.dead[: most // 2], *(rank for rank, _ in group.by_memory()), *group.ranks]
    kept = set(list(dict.fromkeys(wanted))[:most])
    shown = [rank for rank in group.ranks if rank in kept]
    with_gpu = any(rank.run.peaks.gpu_of_run for rank in shown)
    header = ["rank", "host", "memory", "certainty", "at", "during", *(["GPU"] if with_gpu else []), "result"]
    rows = []
    for rank in shown:
        peak = rank.peak
        gpu = max((one.bytes for one in rank.run.peaks.gpu_of_run.values()), default=None)
        rows.append(
            [
                shorten(rank.short, 40),
                shorten(clean(rank.host), 24),
                peak_figure(peak),
                certainty(peak),
                "-" if peak is None or peak.at is None else duration(peak.at),
                shorten(clean(peak.operation), 28) if peak is not None and peak.operation else "-",
                *([size(gpu) if gpu is not None else "-"] if with_gpu else []),
                shorten(clean(rank.run.ending.reason), 44),
            ]
        )
    align = "rlrlrl" + ("r" if with_gpu else "") + "l"
    page.table(rows, Columns(header, align, first_to_go=("at", "certainty"), names="result"))
    if len(shown) < len(group.ranks):
        page.paragraph(
            f"{len(shown)} of {len(group.ranks)}: the largest and those that failed. All ranks: --json."
        )


def earlier_attempts(group: RankGroup, page: Page) -> None:
    """Write a section with attempts that were replaced by later ones."""
    if not group.earlier:
        return
    page.section("Earlier attempts (not counted)")
    rows = [
        [
            "-" if rank.rank is None else str(rank.rank),
            shorten(clean(rank.host), 24),
            peak_figure(rank.peak),
            shorten(clean(rank.run.ending.reason), 60),
        ]
        for rank in group.earlier[:SHOWN]
    ]
    page.table(rows, Columns(["rank", "host", "memory", "result"], "rlrl"))
    if len(group.earlier) > SHOWN:
        page.paragraph(f"{len(group.earlier) - SHOWN} more.")

"""The whole story of a group as plain text: what ran where, what was needed together, each rank, each host, who died first."""

from __future__ import annotations

import math
import time

from otel_memwatch.reports.text.page import Page
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

    from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup

SHOWN = 24
"""Ranks in the table: the largest, and those that did not end well. All are in the JSON."""
_NAMED = 20
"""Numbers of ranks in a sentence."""


def text(group: RankGroup, display: Display = FILE) -> str:
    """The report, with a newline at its end."""
    page = Page(display)
    _what_ran(group, page)
    _memory(group, page)
    _hosts(group, page)
    _ranks(group, page)
    _earlier(group, page)
    return page.text()


def _what_ran(group: RankGroup, page: Page) -> None:
    page.title(f"otel-memwatch: group {clean(group.name)}")
    page.fact("command", command_line(group.command) or "unknown")
    ranks = count(len(group.numbered), "rank" if group.numbered[0].rank is not None else "run")
    of = f" of {group.size}" if group.size and group.size != len(group.numbered) else ""
    launcher = f", started by {clean(group.launcher)}" if group.launcher not in ("", "given", "env") else ""
    page.fact("ranks", f"{ranks}{of} on {count(len(group.hosts), 'host')}{launcher}")
    page.fact("also called", ", ".join(map(clean, group.more)))
    page.fact("started", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(group.started)))
    page.fact("took", duration(group.seconds) + (" so far" if group.state == "running" else ""))
    page.fact("missing", missing(group), "bad")
    page.fact("died first", died_first(group), "bad")
    page.fact("ended badly", ended_badly(group), "bad")
    page.fact("ended", "" if group.dead or group.state == "running" else "all with exit code 0")


def missing(group: RankGroup) -> str:
    """The ranks of which there is no record, in words; "" where none is missing."""
    if not group.missing:
        return ""
    return f"{_numbers(group.missing)}: no record of {'it' if len(group.missing) == 1 else 'them'}"


def died_first(group: RankGroup) -> str:
    """Who ended badly first, why and when; "" where nobody did."""
    death = group.first_death
    if death is None:
        return ""
    words = f"{death.rank.label} on {clean(death.rank.host)}, {duration(death.at)} after the start: {clean(death.rank.run.ending.reason)}"
    if death.operation is not None:
        words += f", in {shorten(clean(death.operation), 40)}"
    if death.others:
        others = ", ".join(rank.label for rank in death.others[:_NAMED]) + (
            " ..." if len(death.others) > _NAMED else ""
        )
        stopped = any(rank.run.state == "incomplete" for rank in (death.rank, *death.others))
        why = "a record stops early" if stopped else "clocks differ between hosts"
        words += f". It may have been {others} too: {why}"
    return words


def ended_badly(group: RankGroup) -> str:
    """Who else ended badly; "" where nobody did."""
    if len(group.dead) < 2:
        return ""
    ranks = [rank.rank for rank in group.dead if rank.rank is not None]
    return _numbers(ranks) if ranks else count(len(group.dead), "run")


def _numbers(ranks: Sequence[int]) -> str:
    """Numbers of ranks in order, stretches of them in short: ranks 1, 3 to 7."""
    ordered = sorted(ranks)
    parts: list[str] = []
    begin = 0
    for index in range(1, len(ordered) + 1):
        if index < len(ordered) and ordered[index] == ordered[index - 1] + 1:
            continue
        first, last = ordered[begin], ordered[index - 1]
        parts.append(str(first) if first == last else f"{first} {'to' if last > first + 1 else 'and'} {last}")
        begin = index
    named = ", ".join(parts[:_NAMED]) + (f" and more, {len(ordered)} in all" if len(parts) > _NAMED else "")
    return f"rank {named}" if len(ordered) == 1 else f"ranks {named}"


def together_words(group: RankGroup) -> str:
    """Return what the memory of all ranks is the sum of."""
    if len(group.together.hosts) == 1:
        return "Sum at the worst instant, not of peaks at different times."
    return "Sum of the hosts' own peaks, each at the worst instant of its host."


def _memory(group: RankGroup, page: Page) -> None:
    together, largest, median = group.together, group.by_memory(), group.median
    page.section("Memory")
    at = "" if together.peak.at is None else f", at {duration(together.peak.at)}"
    page.fact("all together", peak_sentence(together.peak, source=False) + at, "strong")
    page.fact("", together_words(group))
    if group.state != "finished":
        page.fact("", "At least so much: not all records reach to the end.")
    if group.missing:
        page.fact("", f"Without {_numbers(group.missing)}.")
    if not largest:
        return
    rank, value = largest[0]
    operation = rank.peak.operation if rank.peak is not None else None
    where = f" in {shorten(clean(operation), 40)}" if operation else ""
    page.fact(
        "largest rank", f"{peak_sentence(rank.peak, source=False)}: {rank.label} on {clean(rank.host)}{where}"
    )
    if len(largest) > 1 and median:
        page.fact(
            "skew",
            f"{value / median:.2f} times the median of {size(median)}; smallest {size(largest[-1][1])} ({largest[-1][0].label})",
        )


def _hosts(group: RankGroup, page: Page) -> None:
    hosts = group.together.hosts
    if len(hosts) < 2 and len(group.hosts) < 2:
        return
    page.section("Hosts")
    rows = [
        [
            shorten(clean(host.host), 40),
            str(host.runs),
            size(host.low) + " at least"
            if math.isinf(host.high)
            else size_range(host.low, host.high, " to "),
        ]
        for host in sorted(hosts, key=lambda one: -one.low)[:SHOWN]
    ]
    page.table(rows, ["host", "runs", "at one instant"], "lrr", names="host")
    if len(hosts) > SHOWN:
        page.paragraph(f"... and {count(len(hosts) - SHOWN, 'host')} more, with less")


def _ranks(group: RankGroup, page: Page) -> None:
    page.section("Ranks")
    shown = _shown(group)
    with_gpu = any(rank.run.peaks.gpu for rank in shown)
    header = ["rank", "host", "memory", "certainty", "at", "in", *(["GPU"] if with_gpu else []), "ended"]
    rows = []
    for rank in shown:
        peak = rank.peak
        gpu = max((one.bytes for one in rank.run.peaks.gpu.values()), default=None)
        rows.append(
            [
                "all" if rank.rank is None else str(rank.rank),
                shorten(clean(rank.host), 24),
                peak_figure(peak),
                certainty(peak),
                "-" if peak is None or peak.at is None else duration(peak.at),
                shorten(clean(peak.operation), 28) if peak is not None and peak.operation else "-",
                *([size(gpu) if gpu is not None else "-"] if with_gpu else []),
                shorten(clean(rank.run.ending.reason), 44),
            ]
        )
    page.table(
        rows,
        header,
        "rlrlrl" + ("r" if with_gpu else "") + "l",
        first_to_go=("at", "certainty"),
        names="ended",
    )
    if len(shown) < len(group.ranks):
        page.paragraph(
            f"{len(shown)} of {len(group.ranks)}: the largest, and those that did not end well. All are in --json."
        )


def _shown(group: RankGroup) -> list[Rank]:
    if len(group.ranks) <= SHOWN:
        return list(group.ranks)
    wanted = [*group.dead[: SHOWN // 2], *(rank for rank, _ in group.by_memory()), *group.ranks]
    kept = list(dict.fromkeys(wanted))[:SHOWN]
    return [rank for rank in group.ranks if rank in kept]


def _earlier(group: RankGroup, page: Page) -> None:
    if not group.earlier:
        return
    page.section("Earlier attempts, not counted")
    rows = [
        [
            "-" if rank.rank is None else str(rank.rank),
            shorten(clean(rank.host), 24),
            peak_figure(rank.peak),
            shorten(clean(rank.run.ending.reason), 60),
        ]
        for rank in group.earlier[:SHOWN]
    ]
    page.table(rows, ["rank", "host", "memory", "ended"], "rlrl")
    if len(group.earlier) > SHOWN:
        page.paragraph(f"... and {len(group.earlier) - SHOWN} more")

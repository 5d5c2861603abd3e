"""Limits of each room, which may only go down, and the final limits of each kind of text."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.prose.rules import RATES, RULES, Violation, words
from tests.prose.texts import Text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIMITS = Path(__file__).with_name("limits.toml")
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
HEADER = """\
# Violations that a room may still have, by rule. Numbers only go down: `python -m tests.prose --lower`.
# A rule or room without a number may have none; words with a rate may occur at the final rate.
# If text moves from one room to another, move its count too.
"""


REPORTED_ONLY = {
    (kind, rule) for kind in ("package", "help") for rule in ("long_sentences", "long_parentheses")
}
"""Rules that are counted and not asserted for a kind of text, until its texts are rewritten."""

Counts = dict[str, dict[str, int]]


def exceptions() -> list[dict[str, str]]:
    """Return the exceptions: phrase and reason of each."""
    listed: list[dict[str, str]] = tomllib.loads(EXCEPTIONS.read_text()).get("exception", [])
    return listed


def excepted() -> list[str]:
    """Return the phrases that no rule applies to."""
    return [one["phrase"] for one in exceptions()]


def room_limits() -> Counts:
    """Return the highest count of each rule in each room."""
    return tomllib.loads(LIMITS.read_text())


def room_counts(texts: Iterable[Text], found: Iterable[Violation]) -> Counts:
    """Return the count of each rule in each room."""
    counts: Counts = {_row(text): dict.fromkeys(RULES, 0) for text in texts}
    for one in found:
        counts[_row(one.text)][one.rule] += 1
    return counts


def _row(text: Text) -> str:
    return text.room if text.kind == text.room else f"{text.kind}.{text.room}"


def final_excess(texts: Iterable[Text], found: Iterable[Violation]) -> list[str]:
    """Return a line for each rate that a kind of text exceeds."""
    return [
        f"{kind}: {rule} {count}, limit {limit}"
        for (kind, rule), (count, limit) in _rates(texts, found).items()
        if count > limit
    ]


def _rates(texts: Iterable[Text], found: Iterable[Violation]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return count and limit of each word with a rate, by kind."""
    totals: dict[str, int] = {}
    for text in texts:
        totals[text.kind] = totals.get(text.kind, 0) + words(text.text)
    counts = {(kind, rule): 0 for kind in totals for rule in RATES}
    for one in found:
        if one.rule in RATES:
            counts[one.text.kind, one.rule] += 1
    return {
        (kind, rule): (count, max(1, totals[kind] * RATES[rule][1] // 10_000))
        for (kind, rule), count in counts.items()
    }


def check(texts: list[Text], found: list[Violation]) -> list[str]:
    """Return a line for each room with more violations than its limit."""
    limits = room_limits()
    within = REPORTED_ONLY | {key for key, (count, limit) in _rates(texts, found).items() if count <= limit}
    return [
        f"{room}: {rule}: {count} places, at most {limits.get(room, {}).get(rule, 0)}; see python -m tests.prose PLACE"
        for room, row in room_counts(texts, found).items()
        for rule, count in row.items()
        if count > limits.get(room, {}).get(rule, 0) and (room.split(".")[0], rule) not in within
    ]


def lowered(counts: Counts, limits: Counts) -> Counts:
    """Return the limits, each no higher than the present count."""
    return {
        room: {rule: min(limit, counts[room][rule]) for rule, limit in row.items() if counts[room][rule]}
        for room, row in limits.items()
        if room in counts
    }


def written(limits: Counts) -> str:
    """Return the file with these limits."""
    rows = [
        f'\n["{room}"]\n' + "".join(f"{rule} = {limit}\n" for rule, limit in row.items())
        for room, row in limits.items()
        if row
    ]
    return HEADER + "".join(rows)

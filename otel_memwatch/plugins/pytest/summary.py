"""The words at the end of a session: the largest tests, fixtures, and how many workers fit."""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import certainty, count, from_here, peak_figure, size, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.figures import FixtureFigures, MeasuredTest

_NOTABLE = 1 << 20
"""Bytes below which nothing that a test or fixture added is worth a row."""


class SessionSummary(NamedTuple):
    """All that there is to say."""

    tests: Sequence[MeasuredTest]
    fixtures: Sequence[FixtureFigures]
    comparison: Sequence[str]
    """Lines of a comparison with a baseline."""
    late: Sequence[str]
    undecided: Sequence[str]
    problems: Sequence[str]
    directories: Sequence[Path]
    killed: Sequence[Peak]
    """What tests had in which a worker died."""


def summary_lines(found: SessionSummary, top: int) -> list[str]:
    """The lines; none where there is nothing to say."""
    lines: list[str] = []
    measured = [test for test in found.tests if test.peak is not None]
    rows = sorted(
        measured, key=lambda test: (_added(test), test.peak.bytes if test.peak else 0), reverse=True
    )
    shown = [test for test in rows[:top] if _added(test) >= _NOTABLE] or rows[: min(top, 1)]
    if shown:
        lines += _tests(shown)
        if len(measured) > len(shown):
            lines.append(f"and {count(len(measured) - len(shown), 'more test')}")
    lines += _fixtures(found.fixtures, top)
    if found.comparison:
        lines += ["", "what tests added, against the baseline:", *found.comparison]
    for title, sentences in (
        ("beyond their limits, as the whole record shows:", found.late),
        ("limits of which nobody can tell:", found.undecided),
    ):
        if sentences:
            lines += ["", title, *(f"  {sentence}" for sentence in sentences)]
    advice = _advice(measured, found.killed)
    if advice or found.directories:
        lines.append("")
    lines += advice
    lines += [f"recorded  {from_here(directory)}" for directory in found.directories]
    return lines + [f"otel-memwatch: {problem}" for problem in dict.fromkeys(found.problems)]


def _added(test: MeasuredTest) -> int:
    return 0 if test.added is None else test.added.bytes


def _tests(tests: Sequence[MeasuredTest]) -> list[str]:
    rows = []
    for test in tests:
        phases = [
            "-" if phase is None or phase.peak is None else size(phase.peak)
            for phase in map(test.phases.get, ("setup", "call", "teardown"))
        ]
        tree = test.tree if test.tree is not None and not test.alone else None
        rows.append(
            (
                "-" if test.added is None else f"+{peak_figure(test.added).removeprefix('>= ')}",
                certainty(test.added),
                *phases,
                peak_figure(tree),
                test.nodeid,
            )
        )
    header = ("added", "", "set-up", "call", "tear-down", "with children", "test")
    return table(rows, header, "rlrrrrl")


def _fixtures(fixtures: Sequence[FixtureFigures], top: int) -> list[str]:
    grown = [
        (fixture.figures.peak - fixture.figures.start, fixture)
        for fixture in fixtures
        if fixture.figures.peak is not None and fixture.figures.start is not None
    ]
    rows = [
        (f"+{size(added)}", size(fixture.figures.peak), f"{fixture.name} [{fixture.scope}]", fixture.test)
        for added, fixture in sorted(grown, key=lambda one: one[0], reverse=True)[:top]
        if added >= _NOTABLE
    ]
    return ["", *table(rows, ("added", "peak", "fixture", "first used by"), "rrll")] if rows else []


def _advice(tests: Sequence[MeasuredTest], killed: Sequence[Peak]) -> list[str]:
    """How many workers of pytest-xdist have room here, if each comes to need what the largest test did."""
    needs = [peak.high or peak.bytes for test in tests if (peak := test.tree or test.peak) is not None]
    needs += [peak.low or peak.bytes for peak in killed]  # who was killed may have wanted more
    room = _room()
    if not needs or room is None:
        return []
    fit = max(1, room[0] // max(needs))
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = (
        f"-n {min(fit, cpus)}"
        if fit <= cpus
        else f"-n {cpus}, as there are processors; memory has room for {fit}"
    )
    least = "at least" if killed else "up to"
    return [f"workers   {least} {size(max(needs))} each in {size(room[0])} {room[1]}: {words}"]


def _room() -> tuple[int, str] | None:
    """Bytes that there are for tests, and whose they are; `None`: not known."""
    from otel_memwatch.runtime.memory_headroom import room

    limited = room()
    if limited is not None:
        return limited.limit, "that the control group may have"
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024, "that the machine has available"
    except (OSError, KeyError, ValueError):
        return None

"""Summary of a session: the largest tests, fixtures, and how many workers fit; and the JSON document of all figures."""

from __future__ import annotations

import json
import os

from otel_memwatch.model import Certainty
from otel_memwatch.plugins.pytest.measured_test import process_peak
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.system import parse_memory
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import certainty, count, from_here, peak_figure, size, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.measured_test import FixtureFigures, MeasuredTest


_NOTABLE = 1 << 20
"""Smallest number of added bytes for which a test or fixture gets a row."""


class SessionSummary(NamedTuple):
    """Data of the summary."""

    tests: Sequence[MeasuredTest]
    fixtures: Sequence[FixtureFigures]
    comparison: Sequence[str]
    """Lines of a comparison with a baseline."""
    late: Sequence[str]
    undecided: Sequence[str]
    problems: Sequence[str]
    directories: Sequence[Path]
    killed: Sequence[Peak]
    """Memory of tests during which a worker died."""


def summary_lines(found: SessionSummary, top: int) -> list[str]:
    """Return the lines of the summary; none if nothing was measured."""
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
        lines += ["", "memory added by tests, compared with the baseline:", *found.comparison]
    for title, sentences in (
        ("limits exceeded, according to the complete record:", found.late),
        ("inconclusive limits:", found.undecided),
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
    """Return the bytes that a test added at most, if it is known: with children they are a range."""
    added = test.added
    if added is None:
        return 0
    return added.bytes if added.certainty is Certainty.EXACT or added.high is None else added.high


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
                "-" if test.added is None else f"+{peak_figure(test.added).lstrip('<>= ')}",
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
    """Return how many workers of pytest-xdist fit if each needs as much as the largest test."""
    needs = [peak.high or peak.bytes for test in tests if (peak := test.tree or test.peak) is not None]
    needs += [
        peak.low or peak.bytes for peak in killed
    ]  # a lower bound: the killed test may have needed more
    available = _available()
    if not needs or available is None:
        return []
    fit = max(1, available[0] // max(needs))
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(fit, cpus)
    limited_by = "limited by memory" if fit <= cpus else f"one per CPU; memory allows {fit}"
    bound = "at least" if killed else "up to"
    return [
        f"workers   suggested -n {workers} ({limited_by}): {bound} {size(max(needs))} each of {available[1]}"
    ]


def _available() -> tuple[int, str] | None:
    """Return the bytes available for tests, and their description; `None` if unknown."""
    from otel_memwatch.runtime.memory_headroom import memory_headroom

    limited = memory_headroom()
    if limited is not None:
        return limited.limit, f"{size(limited.limit)} (memory limit)"
    try:
        available = parse_memory(read_once("/proc/meminfo")).available
    except (OSError, ValueError):
        return None
    return available, f"{size(available)} available memory"


SCHEMA = 1


def write_document(path: Path, tests: Iterable[MeasuredTest], fixtures: Iterable[FixtureFigures]) -> None:
    """Write the JSON document, schema 1. Raises `OSError` if it cannot be written.

    `{"schema": 1, "tests": {NODEID: {"process": P, "tree": P, "added": P, "start": BYTES, "worker": NAME,
    "phases": {"setup": P, "call": P, "teardown": P}}},
    "fixtures": [{"name", "scope", "test", "process": P, "start": BYTES}]}`

    P is a peak in the format of `report --json`. A test without set-up has only the phase "call". Sizes are bytes;
    `null` is unknown.
    """
    document = {
        "schema": SCHEMA,
        "tests": {
            test.nodeid: {
                "process": _of_peak(test.peak),
                "tree": _of_peak(test.tree),
                "added": _of_peak(test.added),
                "start": test.start,
                "worker": test.worker or None,
                "phases": {when: _of_peak(process_peak([phase])) for when, phase in test.phases.items()},
            }
            for test in tests
        },
        "fixtures": [
            {
                "name": fixture.name,
                "scope": fixture.scope,
                "test": fixture.test,
                "process": _of_peak(process_peak([fixture.figures])),
                "start": fixture.figures.start,
            }
            for fixture in fixtures
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _of_peak(peak: Peak | None) -> dict[str, object] | None:
    return None if peak is None else peak.to_json()

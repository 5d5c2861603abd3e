"""Gathers the figures of all tests in the process that prints, whoever ran them."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.plugins.pytest.figures import FixtureFigures, MeasuredTest, PhaseFigures, together
from otel_memwatch.plugins.pytest.limits import MemoryLimit, judge
from otel_memwatch.plugins.pytest.summary import Summary, summary_lines
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.figures import TreeKey


class Gathering:
    """The figures of a session.

    Args:
        config: of pytest.
        top: rows of the table.

    """

    def __init__(self, config: pytest.Config, top: int) -> None:
        self._config = config
        self._top = top
        self._tests: dict[str, MeasuredTest] = {}
        self._fixtures: list[FixtureFigures] = []
        self._trees: dict[TreeKey, Peak] = {}
        self._problems: list[str] = []
        self._directories: list[Path] = []
        self._undecided: list[tuple[MeasuredTest, MemoryLimit, str]] = []
        self._late: list[str] = []
        """Sentences about limits that only the whole record shows to be exceeded."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the figures that came with a report, and gives those of the whole test to JUnit's."""
        told = getattr(report, "memwatch", None)
        if told is None:
            return
        test = self._tests.get(report.nodeid)
        if test is None:
            test = self._tests[report.nodeid] = MeasuredTest(report.nodeid)
        when = report.when or ""
        test.add(when, PhaseFigures._make(told["figures"]))
        if "fixtures" in told:
            for name, scope, fields in told["fixtures"]:
                figures = PhaseFigures._make(fields)
                self._fixtures.append(FixtureFigures(name, scope, report.nodeid, figures))
        if when == "teardown":
            test.alone = told["alone"]
            test.worker = getattr(report, "worker_id", "")
            for kind, limit, source, text in told.get("undecided", ()):
                self._undecided.append((test, MemoryLimit(kind, limit, source), text))
            report.user_properties += _properties(test)

    def add_record(
        self,
        trees: Mapping[TreeKey, Peak],
        problems: Sequence[str],
        worker: str,
        directory: Path | None,
    ) -> None:
        """Adds what the record of one process says: the tree of tests that had children, and what is missing."""
        self._trees.update(trees)
        self._problems += [f"{worker}: {problem}" if worker else problem for problem in problems]
        if directory is not None:
            self._directories.append(directory)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Puts the trees to their tests, and judges their limits with all that is known now."""
        for test in self._tests.values():
            found = [self._trees.get(phase.key) for phase in test.phases.values()]
            test.tree = together(found)
            if test.tree is None and test.alone and not any(found):
                test.tree = test.peak
        still = []
        for test, limit, text in self._undecided:
            call = test.phases.get("call")
            tree = None if call is None else self._trees.get(call.key)
            if limit.kind != "tree" or tree is None or tree.certainty is Certainty.SAMPLED:
                still.append(f"{test.nodeid}: {text}")
                continue
            for verdict in judge((limit,), {"tree": (tree.low, tree.high)}):
                (self._late if verdict.beyond else still).append(f"{test.nodeid}: {verdict.text}")
        self._still = still
        if self._late and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the table of the largest tests, and what else there is to know."""
        found = Summary(
            list(self._tests.values()), self._fixtures, self._late, self._still, self._problems, self._directories
        )
        lines = summary_lines(found, self._top)
        if lines:
            terminalreporter.section("memory (otel-memwatch)")
            for line in lines:
                terminalreporter.write_line(line)


def _properties(test: MeasuredTest) -> list[tuple[str, object]]:
    """What JUnit's report says of a test."""
    peak = test.peak
    if peak is None:
        return []
    found: list[tuple[str, object]] = [
        ("memwatch.peak", peak.bytes),
        ("memwatch.low", peak.low),
        ("memwatch.high", peak.high),
        ("memwatch.certainty", peak.certainty.value),
    ]
    start = test.start
    if start is not None:
        found.append(("memwatch.added", max(0, peak.bytes - start)))
    return [(name, value) for name, value in found if value is not None]

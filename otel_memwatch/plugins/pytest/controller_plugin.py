"""Controller plugin: collects the figures of all tests in the process that prints them."""

from __future__ import annotations

import pytest

from otel_memwatch.errors import MemwatchError
from otel_memwatch.plugins.pytest.limits import MemoryLimit, judge
from otel_memwatch.plugins.pytest.measured_test import (
    PEAK,
    FixtureFigures,
    MeasuredTest,
    PhaseFigures,
    TestEnd,
    tree_peak,
)
from otel_memwatch.plugins.pytest.summary import SessionSummary, summary_lines, write_document
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.crash_report import KilledTest
    from otel_memwatch.plugins.pytest.measured_test import BaselineOptions, TreeKey


CARRIED = "memwatch-carried"
"""Name of the plugin `CarriedFigures`."""


class ControllerPlugin:
    """Figures of a session.

    Args:
        top: maximum number of rows of the table.
        json: file that receives all figures, or `None`.
        baseline: options for saving and comparing the figures.

    """

    def __init__(self, top: int, json: Path | None, baseline: BaselineOptions) -> None:
        self._top = top
        self._json = json
        self._baseline = baseline
        self._comparison: list[str] = []
        """Lines of the comparison with the baseline."""
        self._reports: list[tuple[str, str, str, bool, Sequence[Any], Sequence[Any] | None]] = []
        """Test, phase, worker, passed, figures, and after the last phase the fields of `TestEnd`."""
        self._more: list[tuple[str, dict[str, Any]]] = []
        """Test, its fixtures, and its inconclusive limits."""
        self._largest: dict[str, Sequence[Any]] = {}
        """Figures of the phase with the largest peak, for each test."""
        self.tests: list[MeasuredTest] = []
        """All tests, after the end of the session."""
        self._fixtures: list[FixtureFigures] = []
        self._trees: dict[TreeKey, Peak] = {}
        self._problems: list[str] = []
        self._directories: list[Path] = []
        self._undecided: list[tuple[MeasuredTest, MemoryLimit, str]] = []
        self._still: list[str] = []
        self._killed: list[Peak] = []
        """Memory of tests during which a worker died."""
        self._late: list[str] = []
        """Sentences about limits that only the complete record shows to be exceeded."""

    def take(
        self,
        nodeid: str,
        when: str,
        fields: Sequence[Any],
        test: Sequence[Any] | None,
        more: dict[str, Any] | None,
        *,
        passed: bool,
        worker: str = "",
    ) -> Sequence[tuple[str, Any]]:
        """Take the figures of a phase, and return those of the whole test for JUnit's report after the last phase."""
        self._reports.append((nodeid, when, worker, passed, fields, test))
        if more is not None:
            self._more.append((nodeid, more))
        largest = self._largest.setdefault(nodeid, fields)
        if largest is not fields and (fields[PEAK] or 0) > (largest[PEAK] or 0):
            self._largest[nodeid] = largest = fields
        if when != "teardown":
            return ()
        peak, low, high, certainty = largest[PEAK:]
        properties = (
            ("memwatch.peak", peak),
            ("memwatch.low", low),
            ("memwatch.high", high),
            ("memwatch.certainty", certainty),
        )
        if peak is None or low is None or high is None:
            return [one for one in properties if one[1] is not None]
        return properties

    def _tests(self) -> list[MeasuredTest]:
        """Return all tests, from their reports."""
        tests: dict[str, MeasuredTest] = {}
        for nodeid, when, worker, passed, fields, end in self._reports:
            test = tests.get(nodeid)
            if test is None:
                test = tests[nodeid] = MeasuredTest(nodeid, worker)
            test.passed = test.passed and passed
            ended = None if end is None else TestEnd._make(end)
            # A test without set-up is measured as a whole and reported at its end.
            whole = ended is not None and ended.whole
            test.add("call" if whole else when, PhaseFigures._make(fields))
            if ended is not None:
                test.alone, test.children = ended.alone, ended.children
                test.passed = test.passed and ended.passed
        for nodeid, more in self._more:
            for name, scope, of_fixture in more["fixtures"]:
                self._fixtures.append(FixtureFigures(name, scope, nodeid, PhaseFigures._make(of_fixture)))
            for kind, limit, source, text in more["undecided"]:
                self._undecided.append((tests[nodeid], MemoryLimit(kind, limit, source), text))
        return list(tests.values())

    def add_record(
        self,
        trees: Mapping[TreeKey, Peak],
        problems: Sequence[str],
        worker: str,
        directory: Path | None,
    ) -> None:
        """Add the trees of tests with children from the record of one process, and its problems."""
        self._trees.update(trees)
        self._problems += [f"{worker}: {problem}" if worker else problem for problem in problems]
        if directory is not None:
            self._directories.append(directory)

    def add_death(self, death: KilledTest) -> None:
        """Add a test during which a worker died, because no report contains its memory."""
        if death.peak is not None:
            self._killed.append(death.peak)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Assign the trees to their tests, and judge inconclusive limits again with the complete record."""
        self.tests = self._tests()
        for test in self.tests:
            test.tree = tree_peak(test, [self._trees.get(phase.key) for phase in test.phases.values()])
        still = self._still
        for test, limit, text in self._undecided:
            call = test.phases.get("call")
            tree = None if call is None else self._trees.get(call.key)
            bounds = {} if limit.kind != "tree" or tree is None else {"tree": (tree.low, None)}
            (beyond,) = judge((limit,), bounds) or (None,)
            if beyond is not None and beyond.beyond:
                self._late.append(f"{test.nodeid}: {beyond.text}")
            else:
                still.append(f"{test.nodeid}: {text}")
        if self._json is not None:
            try:
                write_document(self._json, self.tests, self._fixtures)
            except OSError as error:
                self._problems.append(f"cannot write {self._json}: {error.strerror}")
        regressed = self._against_baseline(session.exitstatus)
        if (self._late or regressed) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _against_baseline(self, exitstatus: int) -> bool:
        """Compare with a baseline or save one, and return whether a test regressed."""
        options = self._baseline
        if options[:3] == (None, None, None) or not self.tests:
            return False
        # Loaded only for comparisons: it takes as long as the rest of the plugin.
        from otel_memwatch.plugins.pytest.baseline import compared, keep, lines_of, session_figures
        from otel_memwatch.wings.gate.comparison import ComparisonVerdict

        session = session_figures(self.tests, self._directories)
        regressed = False
        try:
            if options.base is not None:
                comparison = compared(options, session)
                self._comparison = lines_of(comparison, self._top)
                regressed = options.fail is not None and bool(comparison.having(ComparisonVerdict.REGRESSED))
            if exitstatus == pytest.ExitCode.OK:
                keep(options, session)
        except MemwatchError as error:
            self._problems.append(str(error))
        return regressed

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the summary."""
        if not self.tests and not self._problems:
            return
        found = SessionSummary(
            self.tests,
            self._fixtures,
            self._comparison,
            self._late,
            self._still,
            self._problems,
            self._directories,
            self._killed,
        )
        lines = summary_lines(found, self._top)
        if lines:
            terminalreporter.section("memory (otel-memwatch)")
            for line in lines:
                terminalreporter.write_line(line)


class CarriedFigures:
    """Hook that takes the figures which reports carry.

    It serves workers, and plugins that repeat tests or run them in forked children. If pytest itself runs the tests, the
    figures need no hook: each hook costs every test three calls.
    """

    def __init__(self, controller: ControllerPlugin) -> None:
        self._controller = controller

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the figures from a report."""
        # Remove them from the report: pytest keeps all reports, and each kept object slows down garbage collection.
        found = report.__dict__.pop("memwatch", None)
        if found is not None:
            worker, passed = getattr(report, "worker_id", ""), report.outcome == "passed"
            taken = self._controller.take(
                report.nodeid, report.when or "", *found, passed=passed, worker=worker
            )
            report.user_properties += taken

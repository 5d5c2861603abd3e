"""Measures the tests that this process runs: set-up, call and tear-down of each are operations.

What a test costs is three operations and three system calls. The tree of a test that had no children is its process.
"""

from __future__ import annotations

import sys
from time import monotonic

import pytest

from otel_memwatch.in_target.operations import Operation, operation
from otel_memwatch.in_target.operations.lines import LONGEST_NAME
from otel_memwatch.plugins.pytest.children import ChildrenLedger
from otel_memwatch.plugins.pytest.figures import PhaseFigures, plain_figures, with_children
from otel_memwatch.plugins.pytest.limits import LimitVerdict, MemoryLimit, bounds_of_call, judge, limits_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from otel_memwatch.plugins.pytest.recording import SessionRecord

_SKIPPED = pytest.skip.Exception
_PLAIN = (True, True, None)
"""A `TestEnd` of a test without children that had nothing to set up."""


class MeasuredPhase(Operation):
    """What a test does: one object for all set-ups, calls and tear-downs, each of which is an entry of its own."""

    __slots__ = ("is_begun",)

    def __init__(self) -> None:
        super().__init__("", {})
        self.is_begun = False
        """It runs, or its limits have ended it."""

    def begin(self, name: str, ending: str) -> None:
        """Begins it; the name is cut to the length of an operation's name, its ending is not."""
        room = LONGEST_NAME - len(ending)
        self.name = (name if len(name) <= room else name[: room - 3] + "...") + ending
        self._left = None
        self.is_begun = True
        self.__enter__()

    def leave(self, error: BaseException | None) -> None:
        """Ends the measurement. A test that was skipped has not failed."""
        if error is None or isinstance(error, _SKIPPED):
            self.__exit__(None, None, None)
        else:
            self.__exit__(type(error), error, error.__traceback__)

    def end(self, error: BaseException | None) -> tuple[Any, ...] | None:
        """Ends it, where its limits have not; its figures."""
        if not self.is_begun:
            return None
        self.is_begun = False
        if self._left is None:
            self.leave(error)
        return self.fields()

    def fields(self) -> tuple[Any, ...] | None:
        """The fields of `PhaseFigures`; `None`: nothing is recorded, or it has not ended."""
        return plain_figures(self._left)


class CallEnd:
    """Tells where calls end that have limits or subtests; a plugin of its own, which sessions without need not pass.

    Args:
        measuring: what knows the limits.

    """

    def __init__(self, measuring: Measuring) -> None:
        self._measuring = measuring

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fails a test that has passed but is beyond its limit."""
        self._measuring.in_call = True
        try:
            result = yield
        finally:
            self._measuring.in_call = False
        self._measuring.judge(item)
        return result


class Measuring:
    """The hooks of the process that runs the tests.

    Args:
        every: the limit of each test's process that has none of its own.
        record: of this process.
        worker: whether this is a worker of pytest-xdist.

    """

    def __init__(self, every: MemoryLimit | None, record: SessionRecord, *, worker: bool) -> None:
        self._worker = worker
        self._every = every
        self._record = record
        self._limits: dict[pytest.Item, tuple[MemoryLimit, ...]] = {}
        self._phase = MeasuredPhase()
        self.in_call = False
        """Whether a call runs that may have subtests: each of them makes a report, as the call does at its end."""
        self._is_whole = False
        """Whether the test has nothing to set up, so that it is measured as a whole."""
        self._error: BaseException | None = None
        """What ended the phase, or an earlier one of a whole test."""
        self._fixtures: list[tuple[str, str, tuple[Any, ...]]] = []
        """Fixtures that the set-up has made: name, scope, figures."""
        self._undecided: list[tuple[Any, ...]] = []
        """Limits of this test of which nobody can tell."""
        self._ids: list[int] = []
        """The operations of this test."""
        self._children = ChildrenLedger()
        self._began = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Reads all marks before any test runs: a mistake in one is told at once."""
        subtests = False
        for item in items:
            subtests = subtests or _may_have_subtests(item)
            limits = limits_of(item, self._every)
            if limits:
                self._limits[item] = limits
        if self._limits or subtests:
            config.pluginmanager.register(CallEnd(self), "memwatch-call-end")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """In a worker a mistake in a mark is an error of collection: a controller waits for ever for one that just ends."""
        report = yield
        if self._worker and report.passed:
            try:
                for node in report.result:
                    if isinstance(node, pytest.Item):
                        limits_of(node, self._every)
            except pytest.UsageError as error:
                report.outcome, report.longrepr, report.result = "failed", str(error), []
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collecting imports what the tests need: an operation too."""
        with operation("collection"):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """The first test finds no children but its own."""
        self._record.launched()
        self._children.turn()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begins a set-up; with it, where there is nothing to set up, the whole test."""
        self._began = monotonic()
        # A hash of a test is two calls, which most sessions can do without.
        self._is_whole = not (self._limits and item in self._limits) and not _has_fixtures(item)
        self._phase.begin(item.nodeid, "" if self._is_whole else " [set-up]")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Begins a call."""
        if not self._is_whole:
            self._phase.begin(item.nodeid, "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Begins a tear-down."""
        if not self._is_whole:
            self._phase.begin(item.nodeid, " [tear-down]")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Ends a phase, and gives its figures to the report, with which they reach the process that prints them."""
        if self.in_call:
            return (yield)
        if call.excinfo is not None:
            self._error = call.excinfo.value
        fields = None if self._is_whole and call.when != "teardown" else self._end()
        report = yield
        if fields is None:
            return report
        test = more = None
        if call.when == "teardown":
            test = self._told_of_test(fields)
        else:
            self._ids.append(fields[1])
        if self._fixtures or self._undecided:
            more = {"fixtures": self._fixtures, "undecided": self._undecided}
            self._fixtures, self._undecided = [], []
        report.memwatch = fields, test, more  # type: ignore[attr-defined]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Ends the phase of a test in which somebody stopped the session, before the record ends: nobody killed it."""
        self._end()
        return (yield)

    def _end(self) -> tuple[Any, ...] | None:
        """Ends the phase that is measured; its figures, `None` where there is none or nothing is recorded."""
        error, self._error = self._error, None
        return self._phase.end(error)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Measures the fixtures that outlive a test apart: it is chance which test they are made for."""
        if fixturedef.scope == "function":
            return (yield)
        measured = MeasuredPhase()
        measured.begin(f"fixture {fixturedef.argname}", f" [{fixturedef.scope}]")
        try:
            result = yield
        except BaseException as error:
            measured.end(error)
            raise
        fields = measured.end(None)
        if fields is not None:
            self._fixtures.append((fixturedef.argname, fixturedef.scope, fields))
        return result

    def _told_of_test(self, last: tuple[Any, ...]) -> tuple[Any, ...]:
        """What is known of a test that has ended, as `TestEnd`: `last` are the figures of its last phase."""
        alone, children = self._children.turn()
        self._record.note_test(self._began, alone, (*self._ids, last[1]))
        self._ids.clear()
        # Of most tests the same object: each one that is kept makes Python's collections of garbage longer.
        return _PLAIN if alone and self._is_whole else (alone, self._is_whole, children)

    def judge(self, item: pytest.Item) -> None:
        """Fails a test whose call has passed but is certainly beyond a limit; its call is over then."""
        limits = self._limits.get(item)
        if not limits or not self._phase.is_begun:
            return
        self._phase.leave(None)
        fields = self._phase.fields()
        if fields is None:
            return
        call = PhaseFigures(*fields)
        bounds = bounds_of_call(call)
        if any(limit.kind == "tree" for limit in limits):
            bounds["tree"] = self._tree(call, next(one.bytes for one in limits if one.kind == "tree"))
        beyond: list[LimitVerdict] = []
        for verdict in judge(limits, bounds):
            if verdict.beyond:
                beyond.append(verdict)
            else:
                self._undecided.append((*verdict.limit, verdict.text))
        if beyond:
            pytest.fail("\n".join(f"memory: {verdict.text}" for verdict in beyond), pytrace=False)

    def _tree(self, call: PhaseFigures, limit: int) -> tuple[int | None, int | None]:
        """Bounds of the process with its children; the record is asked only where the kernel's word does not decide."""
        alone, most = self._children.since()
        if alone:
            return call.low, call.high
        low, high = with_children(call.low, call.high, most)
        if (low is None or low <= limit) and (high is None or high > limit):
            low = max(low or 0, self._record.lowest_tree(call) or 0)
        return low, high


def _has_fixtures(item: pytest.Item) -> bool:
    """Whether a test has anything to set up; fixtures of classes and modules, and `setup_method`, are among them."""
    if not isinstance(item, pytest.Function) or isinstance(item.parent, pytest.Class):
        return True
    callspec = getattr(item, "callspec", None)
    return len(item.fixturenames) > (0 if callspec is None else len(callspec.params))


def _may_have_subtests(item: pytest.Item) -> bool:
    """Whether a test has the fixture of that name, or is one of unittest's; plugins do the same before pytest 9."""
    if "subtests" in getattr(item, "fixturenames", ()):
        return True
    kind, unittest = getattr(item, "cls", None), sys.modules.get("unittest")
    return kind is not None and unittest is not None and issubclass(kind, unittest.TestCase)

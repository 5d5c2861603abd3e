"""Measures the tests that this process runs: set-up, call and tear-down of each are operations.

What a test costs is three operations and three system calls. The tree of a test that had no children is its process.
"""

from __future__ import annotations

import os
from time import monotonic

import pytest

from otel_memwatch.in_target.operations import operation
from otel_memwatch.in_target.operations.lines import LONGEST_NAME
from otel_memwatch.plugins.pytest.children import ChildrenLedger
from otel_memwatch.plugins.pytest.figures import PhaseFigures, plain_figures, with_children
from otel_memwatch.plugins.pytest.limits import LimitVerdict, MemoryLimit, bounds_of_call, judge, limits_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from otel_memwatch.in_target.operations import Operation
    from otel_memwatch.plugins.pytest.recording import SessionRecord

_SKIPPED = pytest.skip.Exception


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
        self._operation: Operation | None = None
        """That of the phase which has ended last."""
        self._whole: Operation | None = None
        """That of a whole test, which has nothing to set up; `None`: its phases are measured apart."""
        self._fixtures: list[tuple[str, str, tuple[Any, ...]]] = []
        """Fixtures that the set-up has made: name, scope, figures."""
        self._undecided: list[tuple[Any, ...]] = []
        """Limits of this test of which nobody can tell."""
        self._ids: list[int] = []
        """The operations of this test."""
        self._children = ChildrenLedger()
        self._began = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reads all marks before any test runs: a mistake in one is told at once."""
        for item in items:
            limits = limits_of(item, self._every)
            if limits:
                self._limits[item] = limits

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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a set-up; with it, where there is nothing to set up, the whole test."""
        self._began = monotonic()
        self._whole = None
        if item not in self._limits and not _has_fixtures(item):
            self._whole = operation(_name(item.nodeid, ""))
            self._whole.__enter__()
            return (yield)
        measured = self._operation = operation(_name(item.nodeid, " [set-up]"))
        measured.__enter__()
        try:
            result = yield
        except BaseException as error:
            _fail(measured, error)
            raise
        measured.__exit__(None, None, None)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a call, and fails a test that has passed but is beyond its limit."""
        if self._whole is not None:
            return (yield)
        measured = self._operation = operation(_name(item.nodeid, ""))
        measured.__enter__()
        try:
            result = yield
        except BaseException as error:
            _fail(measured, error)
            raise
        measured.__exit__(None, None, None)
        if self._limits:
            self._judge(item, measured)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a tear-down."""
        measured = self._operation = self._whole
        if measured is None:
            measured = self._operation = operation(_name(item.nodeid, " [tear-down]"))
            measured.__enter__()
        try:
            result = yield
        except BaseException as error:
            _fail(measured, error)
            raise
        measured.__exit__(None, None, None)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Measures the fixtures that outlive a test apart: it is chance which test they are made for."""
        if fixturedef.scope == "function":
            return (yield)
        measured = operation(_name(f"fixture {fixturedef.argname}", f" [{fixturedef.scope}]"))
        measured.__enter__()
        try:
            result = yield
        except BaseException as error:
            _fail(measured, error)
            raise
        measured.__exit__(None, None, None)
        fields = _fields(measured)
        if fields is not None:
            self._fixtures.append((fixturedef.argname, fixturedef.scope, fields))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Gives the figures to the report, with which they reach the process that prints them, wherever that is."""
        report = yield
        measured, self._operation = self._operation, None
        fields = None if measured is None else _fields(measured)
        if fields is None:
            return report
        self._ids.append(fields[1])
        if call.when == "teardown":
            told = self._told_of_test()
        elif self._fixtures:
            told, self._fixtures = {"fixtures": self._fixtures}, []
        else:
            told = None
        report.memwatch = fields, told  # type: ignore[attr-defined]
        return report

    def _told_of_test(self) -> dict[str, Any]:
        """What is known of a test as a whole, when it has ended."""
        alone, most = self._children.turn()
        told: dict[str, Any] = {"alone": alone, "time": (self._began, monotonic()), "ids": self._ids}
        self._ids = []
        if most is not None:
            told["children"] = most
        if self._whole is not None:
            told["whole"] = True
        if self._undecided:
            told["undecided"], self._undecided = self._undecided, []
        return told

    def _judge(self, item: pytest.Item, measured: Operation) -> None:
        """Fails a test that is certainly beyond a limit."""
        fields = _fields(measured)
        limits = self._limits.get(item)
        if not limits or fields is None:
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
    names = getattr(item, "fixturenames", None)
    if not isinstance(item, pytest.Function) or names is None:
        return True
    callspec = getattr(item, "callspec", None)
    return len(names) > (0 if callspec is None else len(callspec.params)) or item.cls is not None


def _name(nodeid: str, ending: str) -> str:
    """A test's name with what it is doing, within the length of an operation's name."""
    room = LONGEST_NAME - len(ending)
    return (nodeid if len(nodeid) <= room else nodeid[: room - 3] + "...") + ending


def _fail(measured: Operation, error: BaseException) -> None:
    """Ends an operation that has raised. A test that was skipped has not failed."""
    if isinstance(error, _SKIPPED):
        measured.__exit__(None, None, None)
    else:
        measured.__exit__(type(error), error, error.__traceback__)


def _fields(measured: Operation) -> tuple[Any, ...] | None:
    """What is known of an operation that has ended; `None`: nothing is recorded."""
    figures, identity = measured.figures, measured.id
    return None if figures is None or identity is None else plain_figures(os.getpid(), identity, figures)

"""Worker plugin: makes set-up, call and tear-down of each test in this process an operation.

Each test costs three operations and three system calls. For a test without children, the tree is the process.
"""

from __future__ import annotations

import sys
from time import monotonic

import pytest

from otel_memwatch.in_target.operations import Operation, operation
from otel_memwatch.plugins.pytest.children import ChildrenLedger
from otel_memwatch.plugins.pytest.controller_plugin import CARRIED
from otel_memwatch.plugins.pytest.limits import LimitVerdict, MemoryLimit, bounds_of_call, judge, limits_of
from otel_memwatch.plugins.pytest.measured_test import PhaseFigures, plain_figures
from otel_memwatch.record.operation_writer import LONGEST_NAME
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.operation import with_children

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from otel_memwatch.plugins.pytest.controller_plugin import ControllerPlugin
    from otel_memwatch.plugins.pytest.session_record import SessionRecord

_SKIPPED = pytest.skip.Exception
_PLAIN = (True, True, None, True)
"""A `TestEnd` of a test that passed, without children and without set-up."""


class PhaseOperation(Operation):
    """Operation of a phase. One object serves all set-ups, calls and tear-downs; each entry is a new operation."""

    __slots__ = ("is_begun", "is_whole")

    def __init__(self) -> None:
        super().__init__("", {})
        self.is_whole = False
        """True if it is the only phase of a test without set-up."""
        self.is_begun = False
        """True while it runs, and until `end` if its limits have ended it."""

    def begin(self, name: str, ending: str) -> None:
        """Begin the phase. A long name is cut to the maximum of an operation's name, but keeps its ending."""
        room = LONGEST_NAME - len(ending)
        self.name = (name if len(name) <= room else name[: room - 3] + "...") + ending
        self._left = None
        self.is_begun = True
        self.__enter__()

    def leave(self, error: BaseException | None) -> None:
        """End the measurement. A skipped test counts as successful."""
        if error is None or isinstance(error, _SKIPPED):
            self.__exit__(None, None, None)
        else:
            self.__exit__(type(error), error, error.__traceback__)

    def end(self, error: BaseException | None) -> tuple[Any, ...] | None:
        """End the phase unless its limits have ended it, and return its figures."""
        if not self.is_begun:
            return None
        self.is_begun = False
        if self._left is None:
            self.leave(error)
        return plain_figures(self._left)

    def fields(self) -> tuple[Any, ...] | None:
        """Return the fields of `PhaseFigures`; `None` if nothing is recorded or the phase has not ended."""
        return plain_figures(self._left)


class CallEnd:
    """Hook at the end of calls with limits or subtests. A separate plugin, so other sessions do not pay for it."""

    def __init__(self, worker: WorkerPlugin) -> None:
        self._worker = worker

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test that has passed but exceeded its limit."""
        self._worker.in_call = True
        try:
            result = yield
        finally:
            self._worker.in_call = False
        self._worker.judge(item)
        return result


Fixture = tuple[str, str, tuple[Any, ...]]
"""Name, scope and figures of a fixture."""


class LaterPhases:
    """Hooks that begin a call and a tear-down, and measure fixtures.

    A separate plugin, so sessions of tests without set-up do not pay for it. A parameter of a test is a fixture too.
    """

    def __init__(self, phase: PhaseOperation, fixtures: list[Fixture]) -> None:
        self._phase = phase
        self._fixtures = fixtures

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Begin a call."""
        if not self._phase.is_whole:
            self._phase.begin(item.nodeid, "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Begin a tear-down."""
        if not self._phase.is_whole:
            self._phase.begin(item.nodeid, " [tear-down]")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Measure fixtures that outlive a test separately, because any test may be the first to use them."""
        if fixturedef.scope == "function":
            return (yield)
        measured = PhaseOperation()
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


class ReportCarrier:
    """Hook that attaches figures to reports, which carry them to another process or past other plugins."""

    def __init__(self, worker: WorkerPlugin) -> None:
        self._worker = worker

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the figures of the phase that `WorkerPlugin` has just ended."""
        report = yield
        carried, self._worker.carried = self._worker.carried, None
        if carried is not None:
            report.memwatch = carried  # type: ignore[attr-defined]
        return report


class WorkerPlugin:
    """Hooks of the process that runs the tests.

    Args:
        every: default limit of each test's process.
        record: record of this process.
        controller: plugin that prints the figures in this process; `None` in a worker of pytest-xdist.

    """

    def __init__(
        self, every: MemoryLimit | None, record: SessionRecord, controller: ControllerPlugin | None
    ) -> None:
        self._controller = controller
        self._take: Callable[..., Sequence[tuple[str, Any]]] | None = None
        """Function that takes the figures of a phase; `None` if its report carries them."""
        self.carried: tuple[Any, ...] | None = None
        """Arguments of `take` for the next report to carry."""
        self._every = every
        self._record = record
        self._limits: dict[pytest.Item, tuple[MemoryLimit, ...]] = {}
        self._phase = PhaseOperation()
        self.in_call = False
        """True during a call that may have subtests. Each subtest makes a report, as the call does at its end."""
        self._has_later_phases = False
        """True once `LaterPhases` is registered."""
        self._error: BaseException | None = None
        """Exception that ended the phase, or an earlier phase of a test measured as a whole."""
        self._fixtures: list[Fixture] = []
        """Fixtures that the set-up created."""
        self._undecided: list[tuple[Any, ...]] = []
        """Limits of this test with an inconclusive result."""
        self._ids: list[int] = []
        """Operations of this test."""
        self._children = ChildrenLedger()
        self._began = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Read all marks before any test runs, and report errors in them at once."""
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
        """Turn an invalid mark in a worker into a collection error.

        A controller would wait for ever for a worker that just ends.
        """
        report = yield
        if self._controller is None and report.passed:
            try:
                for node in report.result:
                    if isinstance(node, pytest.Item):
                        limits_of(node, self._every)
            except pytest.UsageError as error:
                report.outcome, report.longrepr, report.result = "failed", str(error), []
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Make collection an operation, because it imports the tests' modules."""
        with operation("collection"):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Wait for the monitor's launcher to end, so the first test sees only children that it started."""
        self._record.launched()
        self._children.turn()
        plugins = session.config.pluginmanager
        if self._controller is not None and _runs_each_test_once(plugins):
            self._take = self._controller.take
            plugins.unregister(name=CARRIED)
        else:
            plugins.register(ReportCarrier(self), "memwatch-report-carrier")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin a set-up, or the whole test if it has no set-up."""
        self._began = monotonic()
        # Hashing a test takes two calls; sessions without limits avoid it.
        if _has_fixtures(item) or (self._limits and item in self._limits):
            self._phase.is_whole = False
            self._phase.begin(item.nodeid, " [set-up]")
            if not self._has_later_phases:
                self._has_later_phases = True
                later = LaterPhases(self._phase, self._fixtures)
                item.config.pluginmanager.register(later, "memwatch-later-phases")
        else:
            self._phase.is_whole = True
            self._phase.begin(item.nodeid, "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End a phase before pytest makes its report, and pass its figures on.

        Not a wrapper, which costs a generator for each of three reports a test.
        """
        if self.in_call:
            return
        if call.excinfo is not None:
            self._error = call.excinfo.value
        is_whole = self._phase.is_whole
        if is_whole and call.when != "teardown":
            return
        error, self._error = self._error, None
        fields = self._phase.end(error)
        if fields is None:
            return
        passed = error is None
        test = more = None
        if call.when == "teardown":
            alone, children = self._children.turn()
            self._record.note_test(self._began, alone, (*self._ids, fields[1]))
            self._ids.clear()
            # Most tests share one object: each additional object slows down Python's garbage collection.
            test = _PLAIN if alone and is_whole and passed else (alone, is_whole, children, passed)
        else:
            self._ids.append(fields[1])
        if self._fixtures or self._undecided:
            more = {"fixtures": self._fixtures.copy(), "undecided": self._undecided}
            self._fixtures.clear()
            self._undecided = []
        if self._take is None:
            self.carried = fields, test, more
        else:
            # The report copies the properties of its test.
            item.user_properties += self._take(item.nodeid, call.when, fields, test, more, passed=passed)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """End the open phase of an interrupted session before the record ends, so no test is reported as killed."""
        error, self._error = self._error, None
        self._phase.end(error)
        return (yield)

    def judge(self, item: pytest.Item) -> None:
        """Fail a test that has passed but certainly exceeded a limit. Also ends the measurement of its call."""
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
        """Return bounds of the process with its children. Queries the record only if the kernel's counters do not decide."""
        alone, most = self._children.since()
        if alone:
            return call.low, call.high
        low, high = with_children(call.low, call.high, most)
        if (low is None or low <= limit) and (high is None or high > limit):
            low = max(low or 0, self._record.lowest_tree(call) or 0)
        return low, high


def _has_fixtures(item: pytest.Item) -> bool:
    """Return whether a test has any set-up, including fixtures of classes and modules and `setup_method`."""
    if not isinstance(item, pytest.Function):
        return True
    # `isinstance` is slow for abstract classes, as those of pytest are, unless the class is exactly this one.
    if type(item.parent) is not pytest.Module and isinstance(item.parent, pytest.Class):
        return True
    callspec = getattr(item, "callspec", None)
    return len(item.fixturenames) > (0 if callspec is None else len(callspec.params))


def _runs_each_test_once(plugins: pytest.PytestPluginManager) -> bool:
    """Return whether pytest itself runs the tests. Other plugins repeat them, or run them in forked children."""
    steps = plugins.hook.pytest_runtest_protocol.get_hookimpls()
    return all(step.wrapper or step.hookwrapper or step.plugin_name == "runner" for step in steps)


def _may_have_subtests(item: pytest.Item) -> bool:
    """Return whether a test has the fixture `subtests` or is a unittest case. Before pytest 9, plugins do the same."""
    if "subtests" in getattr(item, "fixturenames", ()):
        return True
    kind, unittest = getattr(item, "cls", None), sys.modules.get("unittest")
    return kind is not None and unittest is not None and issubclass(kind, unittest.TestCase)

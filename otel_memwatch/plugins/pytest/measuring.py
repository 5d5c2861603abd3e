"""Measures the tests that this process runs: set-up, call and tear-down of each are operations.

What a test costs is three operations and two system calls. The tree of a test that had no children is its process:
whether it had any is asked of the kernel, which tells for nothing what a tick of the monitor could miss.
"""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic

import pytest

from otel_memwatch.in_target.operations import operation
from otel_memwatch.in_target.operations.lines import LONGEST_NAME
from otel_memwatch.plugins.pytest.figures import PhaseFigures, plain_figures
from otel_memwatch.plugins.pytest.limits import LimitVerdict, MemoryLimit, bounds_of_call, judge, limits_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from otel_memwatch.in_target.operations import Operation

ORPHANS_SECONDS = 1.0
"""How long after the last children a test is taken for one that may have some: orphans of theirs, which are nobody's
children, have either ended by then or been seen by a tick."""

_SKIPPED = pytest.skip.Exception


def childless() -> tuple[int, float] | None:
    """What this process has waited for so far; `None`: it has children now, or they leave no trace.

    Between two equal answers no child was there: one that had ended would have been added, one that had not would be
    there still. Costs 2 us.
    """
    if resource is None or signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return None
    try:
        # Looks without taking what somebody else will wait for.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_minflt, used.ru_stime
    except (AttributeError, OSError):
        pass
    return None


class Measuring:
    """The hooks of the process that runs the tests.

    Args:
        every: the limit of each test's process that has none of its own.
        tree_of_call: gives the bounds of the tree while a call was open, of a call that had children.

    """

    def __init__(
        self,
        every: MemoryLimit | None,
        tree_of_call: Callable[[PhaseFigures], tuple[int | None, int | None]],
    ) -> None:
        self._every = every
        self._tree_of_call = tree_of_call
        self._limits: dict[pytest.Item, tuple[MemoryLimit, ...]] = {}
        self._operation: Operation | None = None
        """That of the phase which has ended last."""
        self._fixtures: list[tuple[str, str, tuple[Any, ...]]] = []
        """Fixtures that the set-up has made: name, scope, figures."""
        self._undecided: list[tuple[Any, ...]] = []
        """Limits of this test of which nobody can tell."""
        self._ids: list[int] = []
        """The operations of this test."""
        self._before = childless()
        """What `childless` said when the last test had ended."""
        self._children_until = -ORPHANS_SECONDS
        self._began = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reads all marks before any test runs: a mistake in one is told at once."""
        for item in items:
            limits = limits_of(item, self._every)
            if limits:
                self._limits[item] = limits

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collecting imports what the tests need: an operation too."""
        with operation("collection"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a set-up."""
        self._began = monotonic()
        measured = self._operation = operation(_name(item.nodeid, " [set-up]"))
        measured.__enter__()
        try:
            return (yield)
        finally:
            _leave(measured)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a call, and fails a test that has passed but is beyond its limit."""
        measured = self._operation = operation(_name(item.nodeid, ""))
        measured.__enter__()
        try:
            result = yield
        finally:
            _leave(measured)
        if self._limits:
            self._judge(item, measured)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measures a tear-down."""
        measured = self._operation = operation(_name(item.nodeid, " [tear-down]"))
        measured.__enter__()
        try:
            return (yield)
        finally:
            _leave(measured)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Measures the fixtures that outlive a test apart: it is chance which test they are made for."""
        if fixturedef.scope == "function":
            return (yield)
        measured = operation(_name(f"fixture {fixturedef.argname}", f" [{fixturedef.scope}]"))
        measured.__enter__()
        try:
            return (yield)
        finally:
            _leave(measured)
            fields = _fields(measured)
            if fields is not None:
                self._fixtures.append((fixturedef.argname, fixturedef.scope, fields))

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
        told: dict[str, Any] = {"figures": fields}
        self._ids.append(fields[1])
        if call.when == "setup" and self._fixtures:
            told["fixtures"], self._fixtures = self._fixtures, []
        elif call.when == "teardown":
            told["time"], told["alone"] = (self._began, monotonic()), self._was_alone()
            told["ids"], self._ids = self._ids, []
            if self._undecided:
                told["undecided"], self._undecided = self._undecided, []
        report.memwatch = told  # type: ignore[attr-defined]
        return report

    def _was_alone(self) -> bool:
        """Whether the process had no children during the test that ends here."""
        now = childless()
        alone = now is not None and now == self._before
        self._before = now
        if not alone:
            self._children_until = monotonic()
        return alone and self._began > self._children_until + ORPHANS_SECONDS

    def _judge(self, item: pytest.Item, measured: Operation) -> None:
        """Fails a test that is certainly beyond a limit."""
        fields = _fields(measured)
        limits = self._limits.get(item)
        if not limits or fields is None:
            return
        call = PhaseFigures(*fields)
        bounds = bounds_of_call(call)
        if any(limit.kind == "tree" for limit in limits):
            had_none = childless() is not None and childless() == self._before
            bounds["tree"] = bounds["limit"] if had_none else self._tree_of_call(call)
        beyond: list[LimitVerdict] = []
        for verdict in judge(limits, bounds):
            if verdict.beyond:
                beyond.append(verdict)
            else:
                self._undecided.append((*verdict.limit, verdict.text))
        if beyond:
            pytest.fail("\n".join(f"memory: {verdict.text}" for verdict in beyond), pytrace=False)


def _name(nodeid: str, ending: str) -> str:
    """A test's name with what it is doing, within the length of an operation's name."""
    room = LONGEST_NAME - len(ending)
    return (nodeid if len(nodeid) <= room else nodeid[: room - 3] + "...") + ending


def _leave(measured: Operation) -> None:
    """Ends an operation. A test that was skipped has not failed."""
    error = sys.exc_info()
    measured.__exit__(*((None, None, None) if isinstance(error[1], _SKIPPED) else error))


def _fields(measured: Operation) -> tuple[Any, ...] | None:
    """What is known of an operation that has ended; `None`: nothing is recorded."""
    figures, identity = measured.figures, measured.id
    return None if figures is None or identity is None else plain_figures(os.getpid(), identity, figures)

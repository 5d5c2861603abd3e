"""Figures of a test, sent from the process that ran it to the process that prints them. Sizes are bytes."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.operation import growth, operation_peak, together, tree_with_children

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_memwatch.in_target.operations.operation_values import LiveOperation

PHASES = ("setup", "call", "teardown")
"""Phases of a test that pytest reports, in this order."""

TreeKey = tuple[int, int]
"""PID and number of an operation, which identify it in the record."""


class PhaseFigures(NamedTuple):
    """Figures of a test's set-up, call or tear-down; `None` is unknown."""

    pid: int
    id: int
    start: int | None
    """Size of the process at the start of the phase."""
    end: int | None
    peak: int | None
    low: int | None
    high: int | None
    certainty: str

    @property
    def key(self) -> TreeKey:
        """Return the key of its operation in the record."""
        return self.pid, self.id

    @property
    def error(self) -> int:
        """Return the error of the kernel's counters in bytes (either direction) if the peak is exact, otherwise 0."""
        if self.certainty != Certainty.EXACT.value or self.peak is None or self.low is None:
            return 0
        return self.peak - self.low


PEAK = PhaseFigures._fields.index("peak")


def plain_figures(live: LiveOperation | None) -> tuple[Any, ...] | None:
    """Return the fields of `PhaseFigures` for a closed operation as a plain tuple, which workers can send.

    `None` if nothing is recorded.
    """
    if live is None or live.opening is None:
        return None
    found = live.recorder.boundaries.figures(live.opening)
    if found is None:
        return None
    peak, start, end, _ = found
    return live.recorder.pid, live.opening.id, start, end, *peak


class TestEnd(NamedTuple):
    """Facts about a whole test that has ended."""

    alone: bool
    """True if the test's process had no children."""
    whole: bool
    """True if the test had no set-up and was measured as one phase."""
    children: tuple[int, int] | None
    """Upper bound of all children together, and size of the largest; `None` if unknown or without children."""
    passed: bool
    """False if the last phase, or any phase of a test measured as one, raised an exception, as skipping does."""


class BaselineOptions(NamedTuple):
    """Options for saving a session's figures and comparing them with a baseline."""

    save: Path | None
    """File that receives the figures."""
    add: Path | None
    """File with earlier sessions to which the figures are added."""
    base: str | None
    """Baseline to compare with: a file, or git:REF:PATH."""
    fail: float | None
    """Increase, as a share, above which a test fails the session; `None` never fails it."""


class FixtureFigures(NamedTuple):
    """Figures of the set-up of a fixture that outlives a test."""

    name: str
    scope: str
    test: str
    """First test that used it."""
    figures: PhaseFigures


class MeasuredTest:
    """Figures of a test; if it ran several times, the largest of each phase."""

    def __init__(self, nodeid: str, worker: str) -> None:
        self.nodeid = nodeid
        self.worker = worker
        self.phases: dict[str, PhaseFigures] = {}
        self.passed = True
        self.alone = False
        """True if its process had no children."""
        self.children: tuple[int, int] | None = None
        """Upper bound of all children together, and size of the largest; `None` if unknown or without children."""
        self.tree: Peak | None = None
        """Peak of the process and its children, from the start of set-up to the end of tear-down."""

    def add(self, when: str, figures: PhaseFigures) -> None:
        """Add the figures of one phase from a report."""
        before = self.phases.get(when)
        if before is None or (figures.peak or 0) >= (before.peak or 0):
            self.phases[when] = figures

    @property
    def peak(self) -> Peak | None:
        """Return the peak of its process over all phases."""
        return process_peak(list(self.phases.values()))

    @property
    def start(self) -> int | None:
        """Return the size of the process at the start of the test."""
        return next((self.phases[when].start for when in PHASES if when in self.phases), None)

    @property
    def added(self) -> Peak | None:
        """Return by how much the process, with any children, exceeded its size at the start of the test."""
        tallest, start = self.tree or self.peak, self.start
        if tallest is None or start is None:
            return None
        # The size at the start comes from the same counters as the peak and has the same error.
        error = max((phase.error for phase in self.phases.values()), default=0)
        return growth(tallest, start, error)


def process_peak(phases: Sequence[PhaseFigures]) -> Peak | None:
    """Return the peak of a process over several phases; `None` if unknown."""
    return together(
        None
        if phase.peak is None
        else operation_peak(phase.peak, Certainty(phase.certainty), phase.low, phase.high)
        for phase in phases
    )


def tree_peak(test: MeasuredTest, recorded: Sequence[Peak | None]) -> Peak | None:
    """Return the peak of a test's process with its children.

    Args:
        test: with the figures of its process.
        recorded: recorded peak of the whole tree, for each of its phases; `None`: unknown.

    """
    own = test.peak
    if test.alone and not any(recorded):
        return own
    return tree_with_children(own, test.children, recorded)

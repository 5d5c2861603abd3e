"""The figures of a test, as they travel from the process that ran it to the one that prints them. Sizes are bytes."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_memwatch.in_target.operations.values import LiveOperation

PHASES = ("setup", "call", "teardown")
"""What pytest makes a report of, in this order."""

TreeKey = tuple[int, int]
"""Process and number of an operation: they name it in the record."""


class PhaseFigures(NamedTuple):
    """What is known of a test's set-up, call or tear-down; `None`: not known."""

    pid: int
    id: int
    start: int | None
    """Size of the process at the beginning."""
    end: int | None
    peak: int | None
    low: int | None
    high: int | None
    certainty: str

    @property
    def key(self) -> TreeKey:
        """Of its operation."""
        return self.pid, self.id

    @property
    def error(self) -> int:
        """By how much the kernel's counters may be off, in either direction, where the peak is exact; else 0."""
        if self.certainty != Certainty.EXACT.value or self.peak is None or self.low is None:
            return 0
        return self.peak - self.low


PEAK = PhaseFigures._fields.index("peak")


def plain_figures(live: LiveOperation | None) -> tuple[Any, ...] | None:
    """The fields of `PhaseFigures` of an operation that was closed: plain, so that every worker can send them.

    `None`: nothing is recorded.
    """
    if live is None or live.opening is None:
        return None
    found = live.recorder.boundaries.figures(live.opening)
    if found is None:
        return None
    peak, start, end, _ = found
    return live.recorder.pid, live.opening.id, start, end, *peak


class TestEnd(NamedTuple):
    """What is known of a test as a whole when it has ended."""

    alone: bool
    """Its process had no children."""
    whole: bool
    """It had nothing to set up, so that its only figures are those of all of it."""
    children: tuple[int, int] | None
    """What they can have needed together, and the largest of them; `None`: not known, or there were none."""


class BaselineOptions(NamedTuple):
    """What is wanted of a session's figures."""

    save: Path | None
    """File that gets them."""
    add: Path | None
    """File that gets them beside those of earlier sessions."""
    base: str | None
    """The baseline to compare them with: a file, or git:REF:PATH."""
    fail: float | None
    """Share above which a test that added more fails the session; `None`: none does."""


class FixtureFigures(NamedTuple):
    """What setting up a fixture that outlives a test took."""

    name: str
    scope: str
    test: str
    """The test that needed it first."""
    figures: PhaseFigures


class MeasuredTest:
    """A test with all that is known of it; of one that was run several times, the largest of each."""

    def __init__(self, nodeid: str, worker: str) -> None:
        self.nodeid = nodeid
        self.worker = worker
        self.phases: dict[str, PhaseFigures] = {}
        self.passed = True
        self.alone = False
        """Its process had no children."""
        self.children: tuple[int, int] | None = None
        """What they can have needed together, and the largest of them; `None`: not known, or there were none."""
        self.tree: Peak | None = None
        """Of the process and its children, from the beginning of the set-up to the end of the tear-down."""

    def add(self, when: str, figures: PhaseFigures) -> None:
        """Adds what a report says of one phase."""
        before = self.phases.get(when)
        if before is None or (figures.peak or 0) >= (before.peak or 0):
            self.phases[when] = figures

    @property
    def peak(self) -> Peak | None:
        """Of its process, whichever phase it was in."""
        return process_peak(list(self.phases.values()))

    @property
    def start(self) -> int | None:
        """Size of the process at the beginning."""
        return next((self.phases[when].start for when in PHASES if when in self.phases), None)

    @property
    def added(self) -> Peak | None:
        """By how much the process, or it and its children together, exceeded its size at the beginning."""
        tallest, start = self.tree or self.peak, self.start
        if tallest is None or start is None:
            return None
        # The size at the beginning comes from the same counters as the peak, and is off by as much.
        error = max((phase.error for phase in self.phases.values()), default=0)
        low = None if tallest.low is None else max(0, tallest.low - start - error)
        high = None if tallest.high is None else max(0, tallest.high - start + error)
        return tallest._replace(bytes=max(0, tallest.bytes - start), low=low, high=high)


def with_children(
    low: int | None, high: int | None, children: tuple[int, int] | None
) -> tuple[int | None, int | None]:
    """Bounds of a process together with its children.

    Args:
        low: lower bound of the process alone.
        high: upper bound of the process alone.
        children: what they can have needed together, and the largest of them, as of `ChildrenLedger.most`.

    """
    if children is None or high is None:
        return low, None
    at_most, largest = children
    # What the process had itself when it started a child is told of the child too.
    return (max(low or 0, largest) if largest > high else low), high + at_most


def process_peak(phases: Sequence[PhaseFigures]) -> Peak | None:
    """The peak of a process over several phases; `None`: it is not known."""
    return together(
        [
            None
            if phase.peak is None
            else Peak(phase.peak, Certainty(phase.certainty), phase.low, phase.high, how="VmHWM")
            for phase in phases
        ]
    )


def tree_peak(test: MeasuredTest, recorded: Sequence[Peak | None]) -> Peak | None:
    """The peak of a test's process with its children.

    Args:
        test: with the figures of its process.
        recorded: what the record says of the whole tree, for each of its phases; `None`: nothing.

    """
    own = test.peak
    if own is None or (test.alone and not any(recorded)):
        return own
    certain, high = with_children(own.low, own.high, test.children)
    low = max(certain or 0, *(peak.low or 0 for peak in recorded if peak is not None), 0)
    return Peak.interval(low, None if high is None else max(low, high), how="VmHWM, page faults of children")


def together(peaks: Iterable[Peak | None]) -> Peak | None:
    """The peak of several stretches of time together; `None` where there are none, or nothing is known of one of them.

    Its bounds are the largest lower and the largest upper one. It is exact where the largest peak is, and no other can be
    above that.
    """
    found: Peak | None = None
    for peak in peaks:
        if peak is None:
            return None
        if found is None:
            found = peak
            continue
        more, less = (peak, found) if peak.bytes > found.bytes else (found, peak)
        high = None if more.high is None or less.high is None else max(more.high, less.high)
        certainty = more.certainty
        if certainty is Certainty.EXACT and (high is None or high > (more.high or 0)):
            certainty = Certainty.INTERVAL
        found = more._replace(certainty=certainty, low=max(more.low or 0, less.low or 0), high=high)
    return found

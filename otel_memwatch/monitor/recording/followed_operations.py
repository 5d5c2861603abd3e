"""Operations of a run, read from their files while it is recorded."""

from __future__ import annotations

import os

from otel_memwatch.monitor.recording.batching import PeriodicAction
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.monitor.recording.batching import SampleBatcher
    from otel_memwatch.record.follower import OperationFollower
    from otel_memwatch.record.operation_lines import OperationRow
    from otel_memwatch.run.operation_aggregator import OperationAggregator

_FOLLOW_SECONDS = 1.0
"""Seconds after which operations reach the aggregator."""

_NOTICED_SECONDS = 0.09
"""Seconds between two searches for the first process that marks operations: ten a second, with room for a late sample."""

_SETTLED_WITHOUT = 10.0
"""Seconds between two batches of samples while no operation has begun: adding many at once costs less."""

_FOLLOWED = 16
"""Number of marking processes up to which every sample reads their operations, to shorten the end of the run.

With more processes, a sample has time for that only once in `_FOLLOW_SECONDS`.
"""

_MANY = 100
"""Number of operations closed since the last sample from which they are also read between samples."""

_KNOWN_AFTER = 5.0
"""Seconds after which a boundary has certainly been read, unless its process was stopped between clock and write."""


class FollowedOperations:
    """Reader of a run's files of operations, in the sampling thread.

    Args:
        path: run directory.
        batcher: has the aggregator and the history of samples.
        notice: called if operations have ended since the last sample.

    Attributes:
        follower: reader of the files; `None` until the first one was found. Most programs mark no operation.
        aggregator: the operations read so far; `None`: none has begun.
        many: true if operations are marked faster than one reading per sample can follow.
        actions: actions for each sample, which are due from `begin` on.

    """

    def __init__(self, path: str, batcher: SampleBatcher, notice: Callable[[], None] | None = None) -> None:
        self.follower: OperationFollower | None = None
        self.aggregator: OperationAggregator | None = None
        self.many = False
        self._path = path
        self._batcher = batcher
        self._notice = notice
        self._listed = 0, 0
        """Time stamps of the directory at its last two listings."""
        self._settled = 0
        """Number of closed operations in the aggregator."""
        self._behind = False
        """True if the files have unread data."""
        self._closed = 0
        """Number of closed operations at the last sample."""
        self._reading = PeriodicAction(self._read_at_sample)
        self._settling = PeriodicAction(self._settle, _SETTLED_WITHOUT)
        self.actions = self._reading, self._settling

    def begin(self) -> None:
        """Let the actions be due at the next sample."""
        self._reading.due = self._settling.due = 0.0

    def marks_operations(self, pid: int) -> bool:
        """Return whether a process resets its watermark itself. Called for few processes; they may have begun a moment ago."""
        file = f"{self._path}/{OPERATIONS_PREFIX}{pid}{OPERATIONS_SUFFIX}"
        return (self.follower is not None or os.path.exists(file)) and self._follow().marks_operations(pid)

    def resets_itself(self, pid: int) -> bool:
        """Return whether a process has announced that it resets its watermark. If not, read operations at this sample."""
        announced = self.follower is not None and self.follower.resets_itself(pid)
        if not announced:
            self._reading.due = 0.0
        return announced

    def have_begun(self) -> bool:
        """Return whether a process has marked operations, as of now."""
        if self.follower is None:
            try:
                changed = os.stat(self._path).st_mtime_ns
                # A file created within the resolution of the time stamp would be missed: list once more after a change.
                if self._listed != (changed, changed):
                    self._listed = self._listed[1], changed
                    if any(name.startswith(OPERATIONS_PREFIX) for name in os.listdir(self._path)):
                        self._follow()
            except OSError:  # another program has removed the directory
                return False
        return self.follower is not None

    def _follow(self) -> OperationFollower:
        """Begin to follow the files of operations, without reading them yet; return their reader."""
        from otel_memwatch.record.follower import OperationFollower

        if self.follower is None:
            self.follower = OperationFollower(self._path)
        return self.follower

    def read(self, *, last: bool = False) -> bool:
        """Read operations into aggregator and digest; return whether there are more.

        Args:
            last: all processes have ended, so a line without its newline is complete.

        """
        if not self.have_begun():
            return False
        assert self.follower is not None
        if self.follower.poll(last=last, on_close=self._close).opened:
            self._opened_aggregator()
        if last and self.follower.files and self._batcher.aggregator is not None:
            self._add_boundaries()
        return self.follower.behind

    def _close(self, row: OperationRow) -> None:
        self._opened_aggregator().close(row)

    def _opened_aggregator(self) -> OperationAggregator:
        """Return the aggregator of operations. It is imported for the first one: most programs mark none."""
        if self.aggregator is None:
            from otel_memwatch.run.operation_aggregator import OperationAggregator

            self.aggregator = OperationAggregator()
        return self.aggregator

    def _add_boundaries(self) -> None:
        """Give the aggregator the readings of processes at the boundaries of their operations."""
        aggregator = self._batcher.aggregator
        assert aggregator is not None
        assert self.follower is not None
        aggregator.boundaries(self.follower.lines())

    def _read_at_sample(self, now: float) -> None:
        """Read operations: at each sample, or once a second if there are many files.

        The aggregator gets them once a second, or once there are `_MANY`. A sample with cold caches has no time for more.
        """
        self._behind = self.read()
        closed = 0 if self.aggregator is None else self.aggregator.closed
        if self._notice is not None and closed != self._closed:
            self._notice()
        self.many, self._closed = self._behind or closed - self._closed >= _MANY, closed
        files = 0 if self.follower is None else self.follower.files
        if not files:
            self._reading.period = _NOTICED_SECONDS
        else:
            self._reading.period = 0.0 if files <= _FOLLOWED or self.many else _FOLLOW_SECONDS
        if self.aggregator is not None and self._settling.period > _FOLLOW_SECONDS:
            self._settling.period, self._settling.due = _FOLLOW_SECONDS, now
        if closed - self._settled >= _MANY:
            self._settling.due = now

    def _settle(self, now: float) -> None:
        """Give the aggregator and the history the operations that were read, and make room for the next ones."""
        self._settled = 0 if self.aggregator is None else self.aggregator.closed
        operations, history, aggregator = self.aggregator, self._batcher.history, self._batcher.aggregator
        if history is None or aggregator is None:
            return
        if operations is None:
            history.merge(lambda: (), now - _KNOWN_AFTER)
            return
        assert self.follower is not None
        self._add_boundaries()
        from otel_memwatch.run.operation_aggregator import LIMIT
        from otel_memwatch.run.operation_digest import moments_of

        if operations.closed > LIMIT:
            moments = moments_of(aggregator.peaks(), aggregator.conditions.started)
            operations.look_at(
                moments, aggregator.window, self.follower.open_operations(), aggregator.reading
            )
        if not self._behind:
            boundaries, open_operations = operations.boundaries, self.follower.open_operations
            history.merge(lambda: boundaries(open_operations()), now - _KNOWN_AFTER)

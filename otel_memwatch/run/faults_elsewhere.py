"""Page faults of the tree that its own control group was not told of: memory that was taken in another group."""

from collections import deque

from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS


class FaultsElsewhere:
    """The most page faults that the group was still not told of once its count had the time to follow.

    Both counts only grow. Each count of the tree is held against the first of the group `GROUP_LAG_SECONDS` later, the last ones
    against the group's last.

    Example: the tree had 52 000 faults and the group 27 000 for a second, then 52 000: none were elsewhere.
    """

    __slots__ = ("_charged", "_settled", "_waiting", "of_tree")

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int]] = deque()
        """When the tree's count was first seen, in monotonic seconds, and the count."""
        self._settled = 0
        self._charged = 0
        self.of_tree = 0
        """Page faults of the tree so far."""

    def add(self, time: float, faults: int, charged: int) -> None:
        """Takes what a tick told in: both counts, at monotonic seconds."""
        while self._waiting and self._waiting[0][0] + GROUP_LAG_SECONDS <= time:
            self._settled = max(self._settled, self._waiting.popleft()[1] - charged)
        if not self._waiting or self._waiting[-1][1] != faults:
            self._waiting.append((time, faults))
        self._charged = charged
        self.of_tree = max(self.of_tree, faults)

    @property
    def most(self) -> int:
        """Page faults so far; 0: none, or nothing is known."""
        return max([self._settled, *(faults - self._charged for _, faults in self._waiting)])

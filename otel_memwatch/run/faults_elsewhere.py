"""Page faults of the tree that the run's cgroup did not count: their memory was charged to another cgroup."""

from collections import deque

from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS


class FaultsElsewhere:
    """The largest number of page faults that the cgroup had still not counted after its count had time to follow.

    Both counts only grow. Each count of the tree is compared with the cgroup's first count `GROUP_LAG_SECONDS` later, the last
    ones with the cgroup's last.

    Example: the tree had 52 000 faults and the cgroup 27 000 for a second, then 52 000: none were elsewhere.
    """

    __slots__ = ("_charged", "_settled", "_waiting", "of_tree")

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int]] = deque()
        """The tree's count, and the monotonic seconds at which it was first seen."""
        self._settled = 0
        self._charged = 0
        self.of_tree = 0
        """Page faults of the tree so far."""

    def add(self, time: float, faults: int, charged: int) -> None:
        """Add both counts of a sample, taken at `time` (monotonic seconds)."""
        while self._waiting and self._waiting[0][0] + GROUP_LAG_SECONDS <= time:
            self._settled = max(self._settled, self._waiting.popleft()[1] - charged)
        if not self._waiting or self._waiting[-1][1] != faults:
            self._waiting.append((time, faults))
        self._charged = charged
        self.of_tree = max(self.of_tree, faults)

    @property
    def most(self) -> int:
        """Page faults so far; 0: none, or not known."""
        return max([self._settled, *(faults - self._charged for _, faults in self._waiting)])

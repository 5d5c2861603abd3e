"""Page faults of the tree that the run's cgroup did not count: their memory was charged to another cgroup."""

from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from otel_memwatch.runtime.light import deque
from otel_memwatch.truth.cgroup import UncountedFaults


class FaultsElsewhere:
    """The largest number of page faults that the cgroup had still not counted after its count had time to follow.

    Both counts only grow. Each count of the tree is compared with the cgroup's first count `GROUP_LAG_SECONDS` later, the last
    ones with the cgroup's last.

    Example: the tree had 52 000 faults and the cgroup 27 000 for a second, then 52 000: none were elsewhere.
    """

    __slots__ = ("_before", "_charged", "_last", "_settled", "_waiting", "of_tree")

    def __init__(self, before: int | None = None) -> None:
        self._before = before
        """Page faults of the command before it entered the cgroup; `None`: not counted."""
        self._waiting: deque[tuple[float, int]] = deque()
        """The tree's count, and the monotonic seconds at which it was first seen."""
        self._settled = 0
        self._charged = self._last = 0
        """Counts of the cgroup and of the tree at the last sample."""
        self.of_tree = 0
        """Page faults of the tree so far."""

    def add(self, time: float, faults: int, charged: int) -> None:
        """Add both counts of a sample, taken at `time` (monotonic seconds)."""
        while self._waiting and self._waiting[0][0] + GROUP_LAG_SECONDS <= time:
            self._settled = max(self._settled, self._waiting.popleft()[1] - charged)
        if not self._waiting or self._waiting[-1][1] != faults:
            self._waiting.append((time, faults))
        self._charged, self._last = charged, faults
        self.of_tree = max(self.of_tree, faults)

    @property
    def uncounted(self) -> UncountedFaults:
        """Page faults so far; 0: none, or not known."""
        settled = max([self._settled, *(faults - self._charged for _, faults in self._waiting)])
        return UncountedFaults(settled, self._last - self._charged, self._before)

"""What the tree finds out during one tick."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sources.process_tree.member import Member
    from otel_memwatch.monitor.sources.process_tree.windows import Vanished


class Tick:
    """What has changed since the tick before."""

    moved = False
    """Something of a member has changed, or there are others than before."""
    threads = 0
    """Threads that members have more than at the tick before."""
    suspicious = False
    """There may have been processes that were never seen."""
    unseen_faults = 0
    """Page faults of children that are not known processes'."""
    heedless = False
    """A process has ended that ignored the end of its children."""
    blind = False
    """There may have been processes whose page faults nobody was told."""
    certain = True
    """It is known of all that vanished who waited for them."""
    child_faults = 0
    """By how much the members' counts of reaped children's faults rose, minor and major."""
    child_minor_faults = 0
    known_minor_faults = 0
    """Those of them that vanished members are known to have had: with all explained, no unseen child was reaped."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.new: list[tuple[int, int]] = []
        """Processes seen for the first time: pid, and how many pids its threads have used."""
        self.strangers: list[int] = []
        """Pids given lately to what lives and is not of the tree."""
        self.vanished: list[Vanished] = []
        self.removed: dict[int, Member] = {}
        """Members that are no more."""

    @property
    def tells_of_children(self) -> bool:
        """Whether there are processes that came or went, or signs of some that nobody saw."""
        return bool(
            self.new
            or self.removed
            or self.threads
            or self.suspicious
            or self.blind
            or self.unseen_faults
            or self.child_minor_faults
            or self.child_faults
        )

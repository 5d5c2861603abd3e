"""Discovery of the processes of a control group: members are its processes, wherever they began."""

from __future__ import annotations

from otel_memwatch.runtime.procfs.control_group import members as listed
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member


class GroupDiscovery:
    """Search for processes of a group and the groups below it, with the methods of `Discovery`.

    Each search lists all of them. Descendants outside the group do not belong to it.

    Args:
        path: directory of the group.
        exclude: pids that never belong to it.
    """

    def __init__(self, path: str, exclude: Collection[int]) -> None:
        self._path = path
        self._exclude = exclude

    def cheaper_to_probe(self, pids: int, members: Mapping[int, Member]) -> bool:  # noqa: ARG002 - as `Discovery`
        """Return that listing is always cheaper."""
        return False

    def probe(
        self, pids: Iterable[int], members: Mapping[int, Member], add: Callable[[int], bool]
    ) -> list[int]:
        """Add the group's processes among `pids`. No process is known to belong to other programs."""
        wanted = set(pids)
        self.walk(members, lambda pid: pid in wanted and add(pid))
        return []

    def walk(self, members: Mapping[int, Member], add: Callable[[int], bool]) -> Sequence[int]:
        """Add all processes of the group that are not members; none is known to be hidden."""
        for pid in listed(self._path):
            if pid not in members and pid not in self._exclude:
                add(pid)
        return ()

    def close(self) -> None:
        """Do nothing: no file stays open."""

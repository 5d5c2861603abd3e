"""Which processes of the tree are not in the control group that is read."""

from __future__ import annotations

from otel_memwatch.runtime.procfs.control_group import locate, parse_memberships, parse_mounts
from otel_memwatch.runtime.procfs.process import is_exiting
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.cgroup.files import Groups


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


_FEW = 8
"""Processes of which all are looked at at every tick."""


class Outside:
    """Looks where each process of the tree is when it is new, and where all are about once a second (10 us each).

    Few processes are looked at at every tick, and those that we have waited for once more at their end, which version 2 tells.
    """

    def __init__(self, context: Context, groups: Groups) -> None:
        self._context = context
        self._group = groups.memory
        self._version = groups.version
        self._mounts = parse_mounts(_read(f"{context.proc}/self/mountinfo"))
        self._known: frozenset[int] = frozenset()
        # Our child was in our group when it began. Where that is another, it has moved, and may have moved others that no tick sees.
        moved = context.adopt and not self._is_inside("self")
        self._outside: set[int] = {context.root} if moved else set()

    def count(self, *, all_of_them: bool) -> int:
        """How many processes have been seen outside so far."""
        pids = frozenset(self._context.pids())
        for pid in pids if all_of_them or len(pids) <= _FEW else pids - self._known:
            if pid not in self._outside and not self._is_inside(pid):
                self._outside.add(pid)
        self._known = pids
        if self._version == 2 and self._context.tree is not None:
            ended = self._context.tree.ended_in().items()
            self._outside.update(pid for pid, groups in ended if not self._holds(groups))
        return len(self._outside)

    def _is_inside(self, pid: int | str) -> bool:
        proc = f"{self._context.proc}/{pid}"
        try:
            # version 1 shows one that is ending in the root group
            return self._holds(_read(f"{proc}/cgroup")) or (
                self._version == 1 and is_exiting(_read(f"{proc}/stat"))
            )
        except OSError:
            return True

    def _holds(self, groups: bytes) -> bool:
        """Whether our group, or one below it, is among those of a process."""
        location = locate(parse_memberships(groups), self._mounts, "memory")
        path = "" if location is None else str(location.path)
        return path == self._group or path.startswith(f"{self._group}/")

"""Processes of the tree outside the cgroup that is read."""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.sources.cgroup.location import read_file
from otel_memwatch.runtime.procfs.control_group import locate, parse_memberships, parse_mounts
from otel_memwatch.runtime.procfs.process import is_exiting
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.cgroup.location import Groups


_FEW = 8
"""Number of processes up to which every sample checks all."""
_READ = 4096
"""Bytes per read; longer memberships are read as a whole file."""


class Outside:
    """Count of the tree's processes outside the cgroup (5 us for each check).

    A new process is checked at once, all processes about once a second, and up to `_FEW` at every sample. In version 2,
    a process that we waited for is checked once more at its end.
    """

    def __init__(self, context: Context, groups: Groups) -> None:
        self._context = context
        self._group = groups.memory
        self._version = groups.version
        self._mounts = parse_mounts(read_file(f"{context.proc}/self/mountinfo"))
        self._known: frozenset[int] = frozenset()
        self._inside: bytes | None = None
        """Memberships of a process inside. Equal ones are not parsed again."""
        self._files: dict[int | str, int] = {}
        """Open descriptors of processes that every sample checks."""
        # Our child started in our cgroup. If it is in another one, it has moved, and may have moved unseen processes too.
        moved = context.adopt and not self._is_inside("self")
        self._outside: set[int] = {context.root} if moved else set()

    def count(self, *, all_of_them: bool) -> int:
        """Return the number of processes seen outside so far."""
        pids = frozenset(self._context.pids())
        for pid in pids if all_of_them or len(pids) <= _FEW else pids - self._known:
            if pid not in self._outside and not self._is_inside(pid):
                self._outside.add(pid)
        if pids != self._known:
            self._close_files(set(self._files) - pids if len(pids) <= _FEW else set(self._files))
            self._known = pids
        self.note_ended()
        return len(self._outside)

    def note_ended(self) -> None:
        """Check the processes that ended by this sample."""
        if self._version == 2 and self._context.tree is not None and (ended := self._context.tree.ended_in()):
            self._outside.update(pid for pid, groups in ended.items() if not self._holds(groups))

    def _is_inside(self, pid: int | str) -> bool:
        try:
            groups = self._memberships(pid)
            if groups == self._inside:
                return True
            if self._holds(groups):
                self._inside = groups
                return True
            # Version 1 lists an exiting process in the root group.
            return self._version == 1 and is_exiting(read_file(f"{self._context.proc}/{pid}/stat"))
        except OSError:
            return True

    def _memberships(self, pid: int | str) -> bytes:
        """Return /proc/PID/cgroup. Its descriptor stays open for one of few known processes.

        A descriptor belongs to its process for ever: after its end, the file of this pid is opened again.
        """
        descriptor = self._files.get(pid)
        if descriptor is not None:
            try:
                groups = os.pread(descriptor, _READ, 0)
            except OSError:
                self._close_files({pid})
            else:
                if len(groups) < _READ:
                    return groups
        path = f"{self._context.proc}/{pid}/cgroup"
        if descriptor is None and pid in self._known and len(self._known) <= _FEW:
            self._files[pid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return read_file(path)

    def _close_files(self, pids: Collection[int | str]) -> None:
        for pid in pids:
            os.close(self._files.pop(pid))

    def close(self) -> None:
        """Close the files."""
        self._close_files(set(self._files))

    def _holds(self, groups: bytes) -> bool:
        """Return whether a process with these memberships is in our cgroup or below it."""
        location = locate(parse_memberships(groups), self._mounts, "memory")
        path = "" if location is None else str(location.path)
        return path == self._group or path.startswith(f"{self._group}/")

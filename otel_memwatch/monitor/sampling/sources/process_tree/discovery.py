"""Finds the processes of the tree that are not known yet.

The kernel gives pids in rising order and shows the last one, so that nothing has to be looked for while that stands
still. When it has moved, either the pids given since are looked at one by one, or the children of all members are
listed, whichever is less work. A pid chosen by hand (clone3 with set_tid) is found by the listing only, which is
done about once a second in any case.
"""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.sources.process_tree.files import Descriptors, KeptFile, read_once
from otel_memwatch.runtime.procfs.process import parse_stat, parse_thread_group
from otel_memwatch.runtime.procfs.system import parse_last_pid
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member

DEFAULT_PID_MAX = 1 << 22
PROBE_COST = 4
"""Looking at one pid costs about as much as listing the children of this many processes with one thread."""
THREAD_COST = 3
"""As above, for each thread of a process that has several: their files are not kept open."""
WORTH_KNOWING = 16
"""What looking at pids one by one may cost more: it shows besides which of them are other programs'."""


class ForkCounter:
    """The last pid that the kernel gave in our pid namespace, to a process or a thread (1 us)."""

    def __init__(self, proc: str, descriptors: Descriptors) -> None:
        self._file = KeptFile(f"{proc}/loadavg", descriptors)
        try:
            self._pid_max = int(read_once(f"{proc}/sys/kernel/pid_max"))
        except (OSError, ValueError):
            self._pid_max = DEFAULT_PID_MAX
        self.last = self.read()

    def read(self) -> int:
        """The last pid. Raises `OSError` without /proc."""
        return parse_last_pid(self._file.read())

    def between(self, earlier: int, later: int) -> int:
        """Upper bound of the pids given between two readings; the numbers start again near 0 after the largest."""
        return (later - earlier) % self._pid_max

    def given(self, earlier: int, later: int) -> Iterable[int]:
        """The pids given between two readings."""
        for step in range(1, self.between(earlier, later) + 1):
            yield (earlier + step) % self._pid_max

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Discovery:
    """Looks for children of the members, and in `wrap` for orphans that have become our own children.

    Args:
        proc: where /proc is mounted.
        exclude: pids that never belong to the tree.
        adopter: our own pid where orphans of the tree become our children, else `None`.
        since: start of the target in clock ticks: a child of ours that is older is none of the tree's.
        descriptors: how many files may be kept open.
    """

    def __init__(
        self,
        proc: str,
        exclude: Collection[int],
        adopter: int | None,
        since: int,
        descriptors: Descriptors,
    ) -> None:
        self._proc = proc
        self._exclude = exclude
        self._adopter = adopter
        self._since = since
        self._adopted = KeptFile(f"{proc}/{adopter}/task/{adopter}/children", descriptors)
        """Children of our main thread: it starts the target, and the kernel gives orphans to it."""
        self._has_children_files = os.path.exists(f"{proc}/self/task/{os.getpid()}/children")

    def cheaper_to_probe(self, pids: int, members: Mapping[int, Member]) -> bool:
        """Whether looking at this many pids is not much more work than listing all children."""
        probing, listing = pids * PROBE_COST, WORTH_KNOWING
        for member in members.values():
            threads = member.stat.threads
            listing += 1 if threads <= 1 else 1 + THREAD_COST * threads
            if listing > probing:
                return True
        return not self._has_children_files

    def probe(
        self, pids: Iterable[int], members: Mapping[int, Member], add: Callable[[int], bool]
    ) -> list[int]:
        """Look at pids given lately; `add` makes members of those that belong to the tree, parents first.

        Gives those that live and certainly do not: where orphans become our children, what has a parent elsewhere.
        """
        pids = list(pids)
        parents = {}
        for pid in pids:
            if pid not in members and pid not in self._exclude:
                parent = self._parent(pid)
                if parent is not None:
                    parents[pid] = parent
        self._add_descendants(parents, members, add)
        if self._adopter is None:
            return []
        unsure, strangers = {*pids, self._adopter, 0}, []
        for pid in parents:
            parent = self._parent(pid)
            if parent is not None and parent not in unsure and parent not in members:
                strangers.append(pid)
                unsure.discard(pid)
        return strangers

    def _add_descendants(
        self, parents: dict[int, int], members: Mapping[int, Member], add: Callable[[int], bool]
    ) -> None:
        found = True
        while found and parents:
            found = False
            for pid, parent in list(parents.items()):
                if parent in members or parent == self._adopter:
                    del parents[pid]
                    if self._is_process(pid):
                        found |= add(pid)

    def _parent(self, pid: int) -> int | None:
        """Parent of a process that may belong to the tree."""
        try:
            stat = parse_stat(read_once(f"{self._proc}/{pid}/stat"))
        except (OSError, ValueError):
            return None
        return stat.ppid if stat.ppid != self._adopter or stat.start >= self._since else None

    def _is_process(self, pid: int) -> bool:
        """Threads can be read like processes, under their own number."""
        try:
            return parse_thread_group(read_once(f"{self._proc}/{pid}/status")) == pid
        except (OSError, ValueError):
            return False

    def walk(self, members: Mapping[int, Member], add: Callable[[int], bool]) -> Sequence[int]:
        """List the children of all members, and of what is found; `add` makes members of those that are not known.

        Gives those that could not be read: they have gone meanwhile, or /proc hides them. The latter are listed all the
        same, and are so when the list is read again.
        """
        if not self._has_children_files:
            self._scan(members, add)
            return ()
        unread: dict[int, Member | None] = dict.fromkeys(self._walk_adopted(members, add))
        waiting = list(members.values())
        while waiting:
            member = waiting.pop()
            for pid in self._children(member):
                if pid in members or pid in self._exclude:
                    continue
                if add(pid):
                    waiting.append(members[pid])
                else:
                    unread[pid] = member
        return [pid for pid, member in unread.items() if self._is_listed(pid, member)]

    def _walk_adopted(self, members: Mapping[int, Member], add: Callable[[int], bool]) -> Sequence[int]:
        """As `walk`, for the orphans that have become our children."""
        unread: list[int] = []
        if self._adopter is None:
            return unread
        for pid in _listed(self._adopted):
            if pid in members or pid in self._exclude:
                continue
            if self._parent(pid) == self._adopter:
                add(pid)
            elif not self._can_be_read(pid):
                unread.append(pid)
        return unread

    def _can_be_read(self, pid: int) -> bool:
        try:
            read_once(f"{self._proc}/{pid}/stat")
        except OSError:
            return False
        return True

    def _is_listed(self, pid: int, parent: Member | None) -> bool:
        """Whether a process that cannot be read is still a child of a member, or ours: then it has not gone."""
        children = _listed(self._adopted) if parent is None else self._children(parent)
        return pid in children and not self._can_be_read(pid)

    def _children(self, member: Member) -> list[int]:
        if member.stat.threads > 1:
            return self._children_of_threads(member.pid)
        return _listed(member.children_file)

    def _children_of_threads(self, pid: int) -> list[int]:
        children: list[int] = []
        tasks = f"{self._proc}/{pid}/task"
        try:
            threads = os.listdir(tasks)
        except OSError:
            return children
        for tid in threads:
            try:
                data = read_once(f"{tasks}/{tid}/children")
            except OSError:
                continue
            children += [int(child) for child in data.split()]
        return children

    def _scan(self, members: Mapping[int, Member], add: Callable[[int], bool]) -> None:
        """Look at every process of the machine: for kernels without children files (CONFIG_PROC_CHILDREN)."""
        try:
            names = os.listdir(self._proc)
        except OSError:
            return
        self.probe([int(name) for name in names if name.isdigit()], members, add)

    def close(self) -> None:
        """Close the file that is kept."""
        self._adopted.close()


def _listed(file: KeptFile) -> list[int]:
    """The children that the file of a thread lists; none where the thread is gone."""
    try:
        return [int(pid) for pid in file.read_all().split()]
    except OSError:
        return []

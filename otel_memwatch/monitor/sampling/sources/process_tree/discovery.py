"""Discovery of new processes of the tree.

The kernel assigns pids in rising order and shows the last one. While it does not change, no search is necessary.
After a change, the cheaper of two searches runs:

* Probe the pids assigned since, one by one.
* List the children of all members.

Only the listing finds a pid chosen by hand (clone3 with set_tid). It runs about once a second in any case.
"""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors, KeptFile
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.control_group import members as listed
from otel_memwatch.runtime.procfs.process import is_exiting, parse_stat, parse_thread_group
from otel_memwatch.runtime.procfs.system import parse_last_pid
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member


DEFAULT_PID_MAX = 1 << 22
PROBE_COST = 4
"""Cost of probing one pid, in listings of the children of a single-threaded process."""
THREAD_COST = 3
"""Cost of each thread of a multithreaded process, in the same unit: the files of threads are not kept open."""
WORTH_KNOWING = 16
"""Extra cost accepted for probing, in the same unit: it also identifies processes of other programs."""


class ForkCounter:
    """Last pid that the kernel assigned in our pid namespace, to a process or a thread (1 us)."""

    def __init__(self, proc: str, descriptors: Descriptors) -> None:
        self._file = KeptFile(f"{proc}/loadavg", descriptors)
        self._proc = proc
        try:
            self._pid_max = int(read_once(f"{proc}/sys/kernel/pid_max"))
        except (OSError, ValueError):
            self._pid_max = DEFAULT_PID_MAX
        self.last = self.read()

    def read(self) -> int:
        """Return the last pid. Raises `OSError` without /proc."""
        return parse_last_pid(self._file.read())

    def file_with(self, pid: int) -> WatchedFile | None:
        """Return the file as it is while this is the last pid; `None`: no descriptor is open."""
        return self._file.watched(b" %d\n" % pid, whole=False)

    def between(self, earlier: int, later: int) -> int:
        """Return an upper bound of the pids assigned between two readings.

        After the largest number the kernel starts again near 0.
        """
        return (later - earlier) % self._pid_max

    def given(self, earlier: int, later: int) -> Iterable[int]:
        """Iterate over the pids assigned between two readings."""
        for step in range(1, self.between(earlier, later) + 1):
            yield (earlier + step) % self._pid_max

    def lives(self, pid: int) -> bool:
        """Return whether a thread with this pid exists and has not begun to exit."""
        try:
            return not is_exiting(read_once(f"{self._proc}/{pid}/stat"))
        except OSError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Discovery:
    """Search for children of the members, and in `wrap` for orphans that have become our children.

    Args:
        proc: mount point of /proc.
        exclude: pids that never belong to the tree.
        adopter: our pid if orphans of the tree become our children, else `None`.
        since: start of the target in clock ticks. Older children of ours do not belong to the tree.
        descriptors: limit of files kept open.
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
        """Children of our main thread: it starts the target and adopts orphans."""
        self._has_children_files = os.path.exists(f"{proc}/self/task/{os.getpid()}/children")

    def cheaper_to_probe(self, pids: int, members: Mapping[int, Member]) -> bool:
        """Return whether probing this many pids costs little more than listing all children."""
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
        """Probe recently assigned pids; `add` makes members of those in the tree, parents first.

        Returns living processes that certainly belong to other programs. They are known only if we adopt orphans: then they
        have a parent outside the tree.
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
        """Return the parent of a process that may belong to the tree."""
        try:
            stat = parse_stat(read_once(f"{self._proc}/{pid}/stat"))
        except (OSError, ValueError):
            return None
        return stat.ppid if stat.ppid != self._adopter or stat.start >= self._since else None

    def _is_process(self, pid: int) -> bool:
        """Return whether a pid is a process. /proc also shows each thread under its number."""
        try:
            return parse_thread_group(read_once(f"{self._proc}/{pid}/status")) == pid
        except (OSError, ValueError):
            return False

    def walk(self, members: Mapping[int, Member], add: Callable[[int], bool]) -> Sequence[int]:
        """List the children of all members, new members included; `add` makes members of unknown children.

        Returns children that /proc hides: they are unreadable but still listed. An ended child is no longer listed.
        """
        if not self._has_children_files:  # CONFIG_PROC_CHILDREN: probe every process of the machine
            with suppress(OSError):
                self.probe([int(name) for name in os.listdir(self._proc) if name.isdigit()], members, add)
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
        """Add orphans that have become our children. Returns unreadable ones, which may have ended."""
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
        """Return whether an unreadable process is still a child of a member or of ours, so it has not ended."""
        children = _listed(self._adopted) if parent is None else self._children(parent)
        return pid in children and not self._can_be_read(pid)

    def _children(self, member: Member) -> list[int]:
        if member.stat.threads <= 1:
            return _listed(member.children_file)
        children: list[int] = []
        tasks = f"{self._proc}/{member.pid}/task"
        with suppress(OSError):
            for tid in os.listdir(tasks):
                with suppress(OSError):
                    children += [int(child) for child in read_once(f"{tasks}/{tid}/children").split()]
        return children

    def close(self) -> None:
        """Close the file that stays open."""
        self._adopted.close()


def _listed(file: KeptFile) -> list[int]:
    """Return the children in the file of a thread; none if the thread has ended."""
    try:
        return [int(pid) for pid in file.read_all().split()]
    except OSError:
        return []


class GroupDiscovery:
    """Search for processes of a group and the groups below it, with the methods of `Discovery`.

    Each search lists all of them. Descendants outside the group do not belong to it.
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

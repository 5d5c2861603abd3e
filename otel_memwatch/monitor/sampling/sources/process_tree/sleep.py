"""Evidence that no member of the tree has run: the kernel's count of how often it let each of them run is the same."""

from __future__ import annotations

from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import are_same
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member


class Sleep:
    """Sleep of all members. A sample that reads members lasts from `begin` to `end`."""

    def __init__(self) -> None:
        self.asleep = False
        """No member has run since the last reading of all files, which found no change."""
        self.runs = 0
        """Grows at each sample before which a member may have run."""
        self._files: list[tuple[int, int, bytes]] = []
        """The counts of all members; empty: unknown."""
        self._sizes: list[tuple[int, int, bytes]] = []
        """The sizes of all members, as of the last reading; empty: to be collected."""
        self._slept = False
        """They were the same at `begin`."""
        self._read_all = False
        """All files have been read after that, and nothing has changed since."""

    def lasts(self) -> bool:
        """Return whether no member has run since `note`."""
        if self._files and are_same(self._files):
            return True
        self._forget()
        return False

    def watched(self) -> tuple[WatchedFile, ...]:
        """Return files that stay as they are while no member runs; empty: there are none that show it."""
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        return tuple(WatchedFile(descriptor, (content,)) for descriptor, _, content in self._files)

    def watched_sizes(self, members: Collection[Member], due: float, every: float) -> tuple[WatchedFile, ...]:
        """Return the files of `keeps_sizes`, to be read from `due` on; empty: unknown, or a member may wait for a disk or memory."""
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        if not self.asleep or len(self._sizes) != len(members) or any(m.stat.state == "D" for m in members):
            return ()
        return tuple(
            WatchedFile(descriptor, (content,), next=due, every=every)
            for descriptor, _, content in self._sizes
        )

    def still_lasts(self) -> bool:
        """Return the same between two samples, without effect on these."""
        return bool(self._files) and are_same(self._files)

    def keeps_sizes(self, members: Collection[Member]) -> bool:
        """Return whether the sizes of sleeping members are the same: the kernel may have reclaimed pages."""
        if not self._sizes:
            self._sizes = [size for member in members if (size := member.size_as_read()) is not None]
        if len(self._sizes) == len(members) and are_same(self._sizes):
            return True
        self._sizes = []
        return False

    def _forget(self) -> None:
        self._files, self._sizes, self._read_all = [], [], False
        self.runs += 1

    def note(self, members: Collection[Member]) -> None:
        """Note the counts of members that are unchanged."""
        files = [file for member in members if (file := member.asleep()) is not None]
        self._files = files if len(files) == len(members) else []

    def begin(self) -> None:
        """Begin a sample that reads members."""
        self._slept = self.lasts()
        self.asleep = self._slept and self._read_all

    def wake(self) -> None:
        """Note that a member may have run during this sample."""
        self.asleep = False

    def end(self, *, changed: bool, whole: bool) -> None:
        """End it. `changed`: a figure has; `whole`: it has read all files."""
        if changed:
            self._forget()
        elif whole:
            self._read_all = self._slept

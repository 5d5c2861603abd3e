"""Details of a run's processes that are read beside the samples, at their own pace: files, heaps, kinds of memory."""

from __future__ import annotations

import math

from otel_memwatch.catalog import MEMWATCH_TREE_MEMORY_USAGE
from otel_memwatch.monitor.sampling.composition import Composition
from otel_memwatch.monitor.sampling.file_use import FileUse
from otel_memwatch.monitor.sampling.java_heaps import JavaHeaps
from otel_memwatch.record.made_of import write_made_of
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.model import Column, Snapshot
    from otel_memwatch.monitor.sampling.remote_heaps import RemoteHeaps
    from otel_memwatch.record.made_of import MadeOf
    from otel_memwatch.record.writer import RunWriter
    from otel_memwatch.truth.heap import HeapReading


class ProcessDetails:
    """Readers of the details; each decides when it is due.

    Args:
        writer: writer of the run directory.
        tree: the source process_tree.
        main: PID of the target.
        columns: of the samples.
        remote: called with a problem of `attach --remote-exec`; `None`: that option is not given.

    Attributes:
        files: files in use.
    """

    def __init__(
        self,
        writer: RunWriter,
        tree: Any,
        main: int,
        columns: Sequence[Column],
        remote: Callable[[str], None] | None,
    ) -> None:
        self._tree = tree
        self.files = FileUse(main)
        self._moved = True
        """A figure of a process has changed since the last reading of files."""
        self._java = JavaHeaps()
        self._remote: RemoteHeaps | None = None
        if remote is not None:
            from otel_memwatch.monitor.sampling.remote_heaps import RemoteHeaps

            self._remote = RemoteHeaps(writer.path, remote)

        def write(found: MadeOf) -> None:
            if writer.in_place:
                with suppress(OSError):  # a full disk is reported with the samples
                    write_made_of(writer.path, found)

        self._composition: Composition | None = None
        self._level = self._level_column = 0
        """The tree's resident memory at the last sample, in bytes, and its index in a sample's values."""
        metrics = [column.metric for column in columns]
        if MEMWATCH_TREE_MEMORY_USAGE in metrics:
            self._level_column = metrics.index(MEMWATCH_TREE_MEMORY_USAGE)
            self._composition = Composition(write, main)

    def due(self, last: float) -> float:
        """Return the monotonic seconds of the next reading while the tree rests; `last`: time of the last sample."""
        if self._remote is not None:
            return -math.inf
        due = self.files.due if self._moved or not self.files.named_none else math.inf
        return due if self._composition is None else min(due, self._composition.due(self._level, last))

    def read(self, snapshot: Snapshot) -> Sequence[HeapReading]:
        """Read what is due after a sample; return readings of heaps."""
        tree, files, now = self._tree, self.files, snapshot.time
        self._moved = self._moved or not tree.resting
        if now >= files.due and (self._moved or not files.named_none):
            self._moved = False
            files.read(tree.pids(), now)
        heaps: list[HeapReading] = []
        if now >= self._java.due:
            heaps += self._java.read(tree.pids(), now)
        if self._remote is not None:
            heaps += self._remote.read(tree.pids, now)
        if self._composition is not None and (level := snapshot.values[self._level_column]):
            self._level = int(level)
            self._composition.note(self._level, tree.pids, now)
        return heaps

    def close(self) -> None:
        """Stop reading."""
        for one in (self._composition, self._remote):
            if one is not None:
                one.close()

"""Free memory that the allocators of this process keep, by their public statistics.

A reading takes the allocators' locks for some 50 us. So it is taken only here, in the program's own thread at the end of an
operation or of `watch()`: never in a signal handler of C, and never in a child that was forked without exec, where
another thread may hold a lock for ever. A reading that takes longer than `_DEADLINE` is the last one of the process.

This file imports nothing of ours: `monitor/sampling/remote_heaps.py` has programs run its text.
"""

from __future__ import annotations

from time import monotonic, perf_counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Statistics = tuple[str, int, int, int, bytes | None] | tuple[None, None, None, None, bytes | None]
    """Return value of `heap_books` in `_heap.c`."""
    Books = tuple[int, int, int]
    """Bytes in use, bytes free, and the free bytes that lie between blocks in use."""

_DEADLINE = 0.02
_SHARE, _ADVANCE = 0.001, 0.005
"""Share of the time that readings may take, and seconds that they may take ahead of it."""
_FORKED = 0x40
"""Flag PF_FORKNOEXEC of /proc/PID/stat: forked, and no exec since."""


class HeapReader:
    """Reads the statistics within a budget, for one process.

    Args:
        books: reads the statistics, given the number of threads; `None` without compiled code.
        read: returns a small file of /proc.

    """

    def __init__(self, books: Callable[[int], Statistics] | None, read: Callable[[str], bytes]) -> None:
        self._books, self._file = books, read
        self._began = monotonic()
        self._spent = 0.0
        self.may_read = books is not None and not _is_forked(read("/proc/self/stat"))
        """False: never read in this process."""

    def due(self) -> float:
        """Return the monotonic time from which another reading is within the budget."""
        return self._began + (self._spent - _ADVANCE) / _SHARE

    def read(self) -> tuple[bytes, int] | None:
        """Return a reading as JSON, and the bytes of /proc that it took; `None` without known statistics."""
        began = perf_counter()
        status = self._file("/proc/self/status")
        text = _reading(status, self._books) if self.may_read and self._books is not None else None
        seconds = perf_counter() - began
        self._spent += seconds
        self.may_read = text is not None and seconds < _DEADLINE
        return None if text is None else (text.encode(), len(status))


def _is_forked(stat: bytes) -> bool:
    fields = stat.rpartition(b")")[2].split()
    return len(fields) < 7 or bool(int(fields[6]) & _FORKED)


def _reading(status: bytes, statistics: Callable[[int], Statistics]) -> str | None:
    fields: dict[bytes, bytes] = {}
    for line in status.splitlines():
        field, _, value = line.partition(b":")
        fields[field] = value.partition(b"kB")[0]
    threads = _whole(fields.get(b"Threads"))
    anonymous, data, stack = (_whole(fields.get(name)) for name in (b"RssAnon", b"VmData", b"VmStk"))
    if threads is None or anonymous is None or data is None or stack is None:
        return None
    name, live, free, scattered, text = statistics(threads)
    if name is None:
        return None
    allocators = {name: (live, free, scattered)}
    own = of_pymalloc(text or b"")
    if own is not None:
        allocators["pymalloc"] = own
    books = ",".join(
        f'"{name}":{{"live":{live},"free":{free},"scattered":{scattered}}}'
        for name, (live, free, scattered) in allocators.items()
    )
    return (
        f'{{"time":{monotonic():.3f},"anonymous":{1024 * anonymous},"private":{1024 * (data + stack)},'
        f'"threads":{threads},"allocators":{{{books}}}}}'
    )


def of_pymalloc(text: bytes) -> Books | None:
    """Return the figures in the text of `sys._debugmallocstats()`; `None`: Python uses another allocator for small objects.

    Available blocks share a pool with blocks in use, and most unused pools an arena.
    """
    found: dict[bytes, int | None] = {}
    for line in text.splitlines():
        name, _, value = line.partition(b"=")
        found[name.strip(b"# 0123456789").partition(b" *")[0]] = _whole(value.replace(b",", b""))
    live, available, unused = (
        found.get(name)
        for name in (b"bytes in allocated blocks", b"bytes in available blocks", b"unused pools")
    )
    if live is None or available is None or unused is None:
        return None
    return live, available + unused, available


def _whole(text: bytes | None) -> int | None:
    text = (text or b"").strip()
    return int(text) if text.isdigit() else None

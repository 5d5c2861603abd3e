"""File pages that a program needs in memory at one moment for its full speed.

Inputs are bytes and seconds; nothing here reads the machine. A run without a limit does not show which pages are used again, so
each rule gives rather too much than too little. None is a bound: the next run may read its files at other moments.

| pages | needed |
| --- | --- |
| mapped by a process | while it maps them |
| read ahead by page faults | until the program maps no more of them (`read_ahead`), less those that it has time to read again (`kept`). Many processes: until the end |
| used by read calls | until calls read as many bytes again |
| written | until they are on disk (`waiting`), less those that it has time to wait for (`unwritten`) |
"""

from __future__ import annotations

from otel_memwatch.truth.stalls import SLOWEST_READ

_MANY = 8
"""Processes above which pages that one of them has read ahead count until the end: the next one maps them."""
_OTHER_PARTS = {1: 0.25, _MANY: 0.5}
"""Share added to the mapped files of the largest process if there are more processes: others map other parts of them."""
_ALL_MAPPED = 0.9
"""Share of the pages that a program maps, from which it needs no further pages that were read ahead. At its end, pandas maps a last
7 % of those that it has read."""
ENDING = 0.05
"""Share of the time at its end in which newly mapped pages do not count as still to be mapped. At its exit, PyTorch maps 8 MiB of 127 for
its destructors, which one of three records shows. Four times as much would count for them."""
_READ_FOR_MAPPED = 2.4
"""Share of the bytes read that a program needs, as a multiple of the share of its pages that it still has to map: it maps some parts
of its files early, and others late. At 2, advice for imports, ffmpeg and PyTorch is as low as 0.97, 0.95 and 0.94 of their knees. At 2.8,
that for rustc is up to 1.30. At 2.4, they are 1.03, 0.97, 0.97 and 1.22."""
_LOST = 0.05
"""Share of the time that may pass with waiting for the disk: full speed is 95 % of the speed."""
_WAITED_FOR = 0.5
"""Share of the bytes read for a page fault until its page is in memory: the kernel reads as much before it as behind it. Python
imports, ffmpeg and rustc waited 0.5 to 1.5 ms for each fault, which is 0.4 of the time that the disk needs for its bytes."""
_UNWRITTEN_MARGIN = 0.45
"""Share added to unwritten pages, among which the kernel has to search for others. It stalls if it finds none between 32 of them: a copy
of 256 MiB does so in 330 MiB and not in 368, one of 128 MiB in 175 and not in 190."""


def mapped_by_several(largest: int, processes: int | None) -> int:
    """Return the file pages that all processes map, from those of the largest one.

    The largest of Chromium's 15 processes maps 170 MiB, all of them 220.
    """
    more = max((share for number, share in _OTHER_PARTS.items() if (processes or 1) > number), default=0.0)
    return round(largest * (1 + more))


def read_ahead(
    read: float, mapped: float, newly: float, newly_in_all: float, processes: int | None = None
) -> float:
    """Return the bytes that page faults read and no process maps, among which may be pages that the program maps later.

    The kernel reads up to 8 MiB for one fault. ffmpeg maps 41 MiB in all. It reads 170 of 210 MiB before it maps the first 10,
    and needs most of them. The smaller the share of its pages that the program still has to map, the fewer it needs.

    Many processes map the same pages one after the other, so the tree needs them until its end. The 17 processes of Firefox map 129
    of the 409 MiB that they read, and those of Chromium 216 of 351. Beside the needed memory, they need 340 and 300 for full speed.

    Args:
        read: so far.
        mapped: at this moment.
        newly: mapped for the first time, so far.
        newly_in_all: at the end.
        processes: of the run; `None`: unknown.
    """
    if (processes or 1) > _MANY:
        return max(0.0, read - mapped)
    if newly >= _ALL_MAPPED * newly_in_all:
        return 0.0
    return max(0.0, min(read - mapped, _READ_FOR_MAPPED * read * (1 - newly / newly_in_all)))


def waiting(before: float, written: float, idle: float, rate: float) -> float:
    """Return the bytes that wait to be written, if the disk writes them while the program computes.

    Without a limit, the kernel lets them grow old for 30 s. At a limit it writes them in the background: a sort that spills 71 MiB
    in 0.6 s needs less than 30 of them. A copy computes nothing: the kernel copies, and the disk reads meanwhile, so its bytes wait.

    Args:
        before: bytes that waited at the sample before.
        written: bytes written since then, perhaps all at this moment.
        idle: CPU seconds in user mode since then, but no more than have passed, less the seconds in which the disk read.
        rate: bytes that the disk moves in a second (`SLOWEST_READ` if unknown).
    """
    return max(0.0, before - rate * max(0.0, idle)) + max(0.0, written)


def kept(ahead: float, seconds: float, rate: float) -> float:
    """Return the pages read ahead that full speed needs: the program has time to read the others again.

    A few that are dropped are read again once, if at all. The fewer are left, the sooner the kernel drops what it has just read, so the
    same pages are read repeatedly: `ahead * d / (1 - d)` bytes if a share `d` of them is dropped. Python imports have 75 MiB in use when
    70 more are read ahead. With 20, 35, 45 and 55 of these dropped, they read 33, 70, 131 and 268 MiB again.

    Args:
        ahead: `read_ahead`.
        seconds: of the run.
        rate: bytes that the disk moves in a second.
    """
    again = _LOST * seconds * rate / _WAITED_FOR
    return ahead * ahead / (ahead + again) if ahead > 0 else 0.0


def unwritten(waits: float, seconds: float, rate: float, *, bursts: float, copied: float) -> float:
    """Return the pages for data that waits to be written, which full speed needs.

    The program has time to wait for a part of the data. If it computes between two bursts of writing, the disk catches up, and the
    program waits in each of them. While a copy waits, the disk also reads. The pages that are not missing need room for others
    among them (`_UNWRITTEN_MARGIN`), which cost no time.

    PostgreSQL has 70 to 90 MiB unwritten, writes 250 in all, and runs for 1.7 s without its waiting. At 750 MB in a second, 20 of them
    may be missing. A sort spills 74 MiB in bursts of 25 to 44. At most 10 of them have room at its knee.

    Args:
        waits: bytes (`waiting`).
        seconds: of the run.
        rate: bytes that the disk moves in a second.
        bursts: number of times that the program writes as much as waits at most, and the disk catches up; below 1 is one.
        copied: share of its bytes that the program reads at the same time.
    """
    time = _LOST * seconds / max(1.0, bursts)
    return max(0.0, waits - time * max(SLOWEST_READ, rate / (1 + copied))) * (1 + _UNWRITTEN_MARGIN)

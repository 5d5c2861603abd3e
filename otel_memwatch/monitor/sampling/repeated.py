"""Samples that repeat the one before, taken without the sources: their files show that no value has changed.

A wake-up finds all caches cold, so most of a sample's cost is the interpreter's own code and data. `take_repeated` waits, compares
files and writes lines in a small loop. `_repeated.c` is the same in C, and takes no part of the interpreter into the caches.
"""

from __future__ import annotations

import os
import select
import time

from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.model import Value

    RepeatedTimes = tuple[list[float], float, float, list[bytes | None], bytes]
    """Times of the samples in monotonic seconds, the next deadline, the seconds of reading, the last content of each file with
    parts (`None`: not read), and the rest of the last line if the disk took only a part."""

LARGEST_FILE = 16384
"""Bytes of a file beyond which it never counts as unchanged."""


class WatchedFile(NamedTuple):
    """An open file that has to stay as it is."""

    descriptor: int
    parts: tuple[bytes, ...]
    """Its content, or parts of it in their order."""
    whole: bool = True
    """The only part is all of its content."""
    next: float = 0.0
    """Monotonic seconds from which on it is read."""
    every: float = 0.0
    """Least seconds between two readings."""


class Repetition(NamedTuple):
    """Condition under which the next samples have the same values of a source."""

    until: float
    """Monotonic seconds from which on the source has to be read."""
    values: Sequence[Value]
    """Values until then, while the files stay as they are."""
    files: tuple[WatchedFile, ...] = ()


def take_plainly(  # noqa: PLR0917 - as in C
    deadline: float,
    interval: float,
    until: float,
    longest_reading: float,
    alarm: int,
    output: int,
    text: bytes,
    files: tuple[WatchedFile, ...],
    most: int,
    /,
) -> RepeatedTimes:
    """Take samples at each deadline, and write their lines.

    It ends before a sample if a file has changed, the alarm rings, `until` is reached, a deadline was missed, or reading took too long.
    Then the next sample is to be taken from the sources.

    Args:
        deadline: monotonic seconds of the next sample.
        interval: seconds between samples.
        until: monotonic seconds.
        longest_reading: seconds that reading a sample may take.
        alarm: descriptor that becomes readable if the next sample may differ; -1: none.
        output: descriptor of the samples' file.
        text: rest of each line after the time.
        files: files to compare.
        most: limit of the number of samples.
    """
    times: list[float] = []
    contents: list[bytes | None] = [None] * len(files)
    due = [file.next for file in files]
    reading, unwritten = 0.0, b""
    poll = select.poll()
    if alarm >= 0:
        poll.register(alarm, select.POLLIN)
    while len(times) < most and deadline < until and not unwritten:
        left = deadline - time.monotonic()
        if poll.poll(max(0, int(left * 1000))):
            break
        time.sleep(max(0.0, deadline - time.monotonic()))
        now = time.monotonic()
        if now >= until or now >= deadline + interval or not _are_same(files, now, due, contents):
            break
        took = time.monotonic() - now
        if took > longest_reading:
            break
        line = b"[%s%s" % (str(round(now, TICK_DECIMALS)).encode(), text)
        try:
            unwritten = line[os.write(output, line) :]
        except OSError:
            unwritten = line
        times.append(now)
        deadline += interval
        reading += took
    return times, deadline, reading, contents, unwritten


def _are_same(
    files: Sequence[WatchedFile], now: float, due: list[float], contents: list[bytes | None]
) -> bool:
    for place, file in enumerate(files):
        if now < due[place]:
            continue
        first = file.parts[0]
        try:
            data = os.pread(file.descriptor, len(first) + 1 if file.whole else LARGEST_FILE, 0)
        except OSError:
            return False
        due[place] = now + file.every
        if file.whole:
            if data != first or len(first) >= LARGEST_FILE:
                return False
            continue
        contents[place], at = data, 0
        for part in file.parts:
            at = data.find(part, at)
            if at < 0:
                return False
            at += len(part) - 1  # the newline at the end of a part may begin the next one
    return True


try:
    from otel_memwatch.monitor.sampling import _repeated

    take_compiled = _repeated.take_repeated
except ImportError:  # no compiler was available
    take_compiled = take_plainly
take_repeated: Callable[..., RepeatedTimes] = take_compiled

"""Report of the child that becomes the command, which `start.c` or its plain twin writes into a pipe."""

from __future__ import annotations

import os
import select
import time

from otel_memwatch.monitor.run.supervise import target
from otel_memwatch.monitor.run.supervise.target import follow_stop
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

FLOOR_MARGIN = 1024 * 1024
"""Bytes by which the RSS of the child may grow between its reading and exec. A search along PATH takes half of this."""
_STOP_MILLISECONDS = 50
"""Interval of the checks whether the child has stopped, until it executes the command."""


class ChildStart(NamedTuple):
    """Report of the child."""

    moment: float
    """Monotonic seconds, right before exec."""
    floor: int
    """Its RSS before exec, in bytes."""
    faults_before: int | None
    """Its page faults before it entered the cgroup; `None`: not counted."""
    misplaced: str | None
    """Error of entering the cgroup."""
    failure: tuple[int, bytes] | None
    """Number and path of the error of exec."""


def parsed(report: bytes) -> ChildStart:
    """Parse the lines of the child."""
    started, floor = time.monotonic(), target.own_max_rss()
    faults: int | None = None
    misplaced: str | None = None
    failure: tuple[int, bytes] | None = None
    for line in report.split(b"\0"):
        word, _, rest = line.partition(b" ")
        if word == b"started":
            moment, _, size = rest.partition(b" ")
            started, floor = float(moment), int(size)
        elif word == b"entered":
            faults = int(rest)
        elif word == b"misplaced":
            misplaced = os.fsdecode(rest)
        elif word == b"failed":
            number, _, path = rest.partition(b" ")
            failure = int(number), path
    return ChildStart(started, floor, faults, misplaced, failure)


def read_report(reader: int, meanwhile: Iterable[object], pid: int) -> bytes:
    """Return the child's lines, complete once exec succeeds or fails. Iterate `meanwhile` until the first line.

    A Ctrl-Z before exec stops the child `pid`. The shell waits for us, so we stop too.
    """
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    for _ in meanwhile:
        if waiting.poll(0):
            break
    lines, part = b"", b"."
    while part:
        while not waiting.poll(_STOP_MILLISECONDS):
            follow_stop(pid)
        part = os.read(reader, 65536)
        lines += part
    os.close(reader)
    return lines

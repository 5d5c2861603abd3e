"""What a boundary may miss, against the kernel itself: memory is touched and given back at the worst moment.

A boundary reads the watermark and then starts it anew. What comes and goes between the two is in no figure: where other
operations are open the boundary must say how much that can have been; where none is it does not matter.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_memwatch.in_target.operations import boundary, watermark
from otel_memwatch.in_target.operations.watermark import FOREIGN, Resettable

Moment = tuple[int | None, int | None, Any, int]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="watermarks that can be reset are Linux's"
)

MIB = 1 << 20


def blip(mib: int) -> None:
    memory = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, len(memory), mmap.PAGESIZE):
        memory[place] = 1
    memory.close()


def blip_in_a_thread(mib: int) -> None:
    thread = threading.Thread(target=blip, args=(mib,))
    thread.start()
    thread.join()


@pytest.fixture
def mark() -> Iterator[Resettable]:
    found = Resettable()
    yield found
    found.close()


BOUNDARIES: dict[str, Callable[[Resettable], Moment]] = {
    "opening": lambda mark: mark.opening(),
    "closing": lambda mark: mark.closing(),
    "opening between": lambda mark: mark.between(watermark.monotonic(), True),
    "closing between": lambda mark: mark.between(watermark.monotonic(), False),
}
every_boundary = pytest.mark.parametrize("boundary", BOUNDARIES.values(), ids=BOUNDARIES.keys())
between = pytest.mark.parametrize("opening", [True, False])


def sizes(moment: Moment) -> tuple[int, int]:
    """Segment and present size."""
    segment, rss = moment[:2]
    assert segment is not None
    assert rss is not None
    return segment, rss


def interrupt(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Let something be done between the reading of the watermark and its reset."""
    reset = os.pwrite

    def write(*arguments: int | bytes) -> int:
        work()
        return reset(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(boundary, "_pwrite", write)
    monkeypatch.setattr(watermark, "_turn", boundary._turn)


@between
@pytest.mark.parametrize("work", [blip, blip_in_a_thread])
def test_what_was_missed_is_bounded(
    mark: Resettable, monkeypatch: pytest.MonkeyPatch, opening: bool, work: Callable[[int], None]
) -> None:
    mark.between(watermark.monotonic(), opening)
    interrupt(monkeypatch, lambda: work(40))
    moment = mark.between(watermark.monotonic(), opening)
    segment, rss = sizes(moment)
    assert segment < rss + 20 * MIB, "the blip was to be missed"
    assert segment + moment[3] >= rss + 39 * MIB


@between
def test_a_boundary_that_took_its_time_is_not_doubted_without_page_faults(
    mark: Resettable, monkeypatch: pytest.MonkeyPatch, opening: bool
) -> None:
    """Pre-empted, or waiting for the interpreter's lock; what was touched before the boundary does not count."""
    mark.between(watermark.monotonic(), opening)
    kept = mmap.mmap(-1, 30 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(30 * MIB))
    interrupt(monkeypatch, lambda: time.sleep(0.02))
    assert mark.between(watermark.monotonic(), opening)[3] == 0
    kept.close()


@every_boundary
def test_the_watermark_is_the_processs_whichever_thread_asks(
    mark: Resettable, boundary: Callable[[Resettable], Moment]
) -> None:
    boundary(mark)
    blip_in_a_thread(50)
    segment, rss = sizes(boundary(mark))
    assert segment >= rss + 48 * MIB
    assert sizes(boundary(mark))[0] < rss + 5 * MIB, "it was started anew"


@every_boundary
def test_what_is_given_back_without_a_page_fault_is_seen(
    mark: Resettable, boundary: Callable[[Resettable], Moment]
) -> None:
    """The reason why the reset is never left out: no counter tells of it."""
    kept = mmap.mmap(-1, 60 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(60 * MIB))
    before = mark.opening()
    kept.close()
    at_once = boundary(mark)
    assert at_once[2][2] - before[2][2] < 100, "nothing to speak of was touched"
    most = sizes(before)[1] - 58 * MIB
    assert sizes(at_once)[1] < most
    assert max(sizes(boundary(mark))) < most


@pytest.mark.parametrize("boundary", [BOUNDARIES[name] for name in BOUNDARIES if name != "opening"])
def test_a_foreign_reset_is_told(mark: Resettable, boundary: Callable[[Resettable], Moment]) -> None:
    """But where no operation is open: there it takes nothing away."""
    kept = mmap.mmap(-1, 60 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(60 * MIB))
    mark.opening()
    kept.close()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    assert boundary(mark)[3] == FOREIGN


def test_what_a_boundary_uses_is_not_in_the_operation(
    mark: Resettable, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: blip(10))
    pages = 10 * MIB // mmap.PAGESIZE
    for opening, closing in (
        (mark.opening, mark.closing),
        (lambda: mark.between(0, True), lambda: mark.between(0, False)),
    ):
        first, last = opening(), closing()
        assert last[2][2] - first[2][2] < pages / 10

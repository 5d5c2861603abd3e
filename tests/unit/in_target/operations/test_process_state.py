"""What a boundary may miss, against the kernel itself: memory is touched and given back at the worst moment.

A boundary reads the watermark and then starts it anew. What comes and goes between the two is in no figure: where other
operations are open the boundary must say how much that can have been; where none is it does not matter.
"""

from __future__ import annotations

import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_memwatch.in_target.operations import process_state as process
from otel_memwatch.in_target.operations.operation_values import Moment
from otel_memwatch.in_target.operations.process_state import FOREIGN, ResettableWatermark, read_totals

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="watermarks that can be reset are Linux's"
)

MIB = 1 << 20
Used = tuple[float, float, int, int]


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
def mark() -> Iterator[ResettableWatermark]:
    found = ResettableWatermark()
    yield found
    found.close()


BOUNDARIES: dict[str, Callable[[ResettableWatermark], Moment]] = {
    "opening": lambda mark: mark.read_and_reset(opening=True, beside=False),
    "closing": lambda mark: mark.read_and_reset(opening=False, beside=False),
    "opening between": lambda mark: mark.read_and_reset(opening=True, beside=True),
    "closing between": lambda mark: mark.read_and_reset(opening=False, beside=True),
}
every_boundary = pytest.mark.parametrize("boundary", BOUNDARIES.values(), ids=BOUNDARIES.keys())
between = pytest.mark.parametrize("opening", [True, False])


def sizes(moment: Moment) -> tuple[int, int]:
    """Segment and present size."""
    assert moment.segment is not None
    assert moment.rss is not None
    return moment.segment, moment.rss


def used(moment: Moment) -> Used:
    assert moment.used is not None
    return moment.used


def interrupt(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Let something be done between the reading of the watermark and its reset."""
    reset = os.pwrite

    def write(*arguments: int | bytes) -> int:
        work()
        return reset(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(process.os, "pwrite", write)


@between
@pytest.mark.parametrize("work", [blip, blip_in_a_thread])
def test_what_was_missed_is_bounded(
    mark: ResettableWatermark, monkeypatch: pytest.MonkeyPatch, opening: bool, work: Callable[[int], None]
) -> None:
    mark.read_and_reset(opening=opening, beside=True)
    interrupt(monkeypatch, lambda: work(40))
    moment = mark.read_and_reset(opening=opening, beside=True)
    segment, rss = sizes(moment)
    assert segment < rss + 20 * MIB, "the blip was to be missed"
    assert segment + moment.doubt >= rss + 39 * MIB


@between
def test_a_boundary_that_took_its_time_is_not_doubted_without_page_faults(
    mark: ResettableWatermark, monkeypatch: pytest.MonkeyPatch, opening: bool
) -> None:
    """Pre-empted, or waiting for the interpreter's lock; what was touched before the boundary does not count."""
    mark.read_and_reset(opening=opening, beside=True)
    kept = mmap.mmap(-1, 30 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(30 * MIB))
    interrupt(monkeypatch, lambda: time.sleep(0.02))
    assert mark.read_and_reset(opening=opening, beside=True).doubt == 0
    kept.close()


@every_boundary
def test_the_watermark_is_the_processs_whichever_thread_asks(
    mark: ResettableWatermark, boundary: Callable[[ResettableWatermark], Moment]
) -> None:
    boundary(mark)
    blip_in_a_thread(50)
    segment, rss = sizes(boundary(mark))
    assert segment >= rss + 48 * MIB
    assert sizes(boundary(mark))[0] < rss + 5 * MIB, "it was started anew"


@every_boundary
def test_what_is_given_back_without_a_page_fault_is_seen(
    mark: ResettableWatermark, boundary: Callable[[ResettableWatermark], Moment]
) -> None:
    """The reason why the reset is never left out: no counter reports it."""
    kept = mmap.mmap(-1, 60 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(60 * MIB))
    before = mark.read_and_reset(opening=True, beside=False)
    kept.close()
    at_once = boundary(mark)
    assert used(at_once)[2] - used(before)[2] < 100, "nothing to speak of was touched"
    most = sizes(before)[1] - 58 * MIB
    assert sizes(at_once)[1] < most
    assert max(sizes(boundary(mark))) < most


@pytest.mark.parametrize("boundary", [BOUNDARIES[name] for name in BOUNDARIES if name != "opening"])
def test_a_foreign_reset_is_reported(
    mark: ResettableWatermark, boundary: Callable[[ResettableWatermark], Moment]
) -> None:
    """But where no operation is open: there it takes nothing away."""
    kept = mmap.mmap(-1, 60 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(bytes(60 * MIB))
    mark.read_and_reset(opening=True, beside=False)
    kept.close()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    assert boundary(mark).doubt == FOREIGN


def test_a_foreign_reset_is_not_noticed_if_no_boundary_saw_the_memory(mark: ResettableWatermark) -> None:
    """A limit of the word exact, in the documentation: page faults would show it, and also whatever a program frees and takes again."""
    first = mark.read_and_reset(opening=True, beside=False)
    blip(60)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    last = mark.read_and_reset(opening=False, beside=False)
    assert last.doubt != FOREIGN
    assert last.segment < first.rss + 30 * MIB


def test_what_a_boundary_uses_is_not_in_the_operation(
    mark: ResettableWatermark, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: blip(10))
    pages = 10 * MIB // mmap.PAGESIZE
    for beside in (False, True):
        first = mark.read_and_reset(opening=True, beside=beside)
        last = mark.read_and_reset(opening=False, beside=beside)
        assert used(last)[2] - used(first)[2] < pages / 10


def test_totals_are_the_kernels() -> None:
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    with open("/proc/self/io") as file:
        before = dict(line.split(": ") for line in file.read().splitlines())
    reading, size = read_totals(descriptor, 1000, 10)
    io = reading.moved
    assert io is not None
    assert size == len(os.pread(descriptor, 1024, 0))
    assert (io[0], io[1]) >= (int(before["read_bytes"]), int(before["write_bytes"]))
    assert 0 <= io[2] + 1000 - int(before["rchar"]) < 2000
    assert io[3] + 10 == int(before["wchar"])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert reading.children == (usage[0], usage[1], usage[6], usage[7])
    without, nothing = read_totals(-1, 0, 0)
    assert (without.children, without.moved, nothing) == (reading.children, None, 0)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file"):
        read_totals(descriptor, 0, 0)

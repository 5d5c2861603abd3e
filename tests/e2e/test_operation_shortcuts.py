"""What an operation leaves out because it is short, against programs in which that would be seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from otel_memwatch.runtime.kernel import rss_error
from tests.support import counters, disturb
from tests.support.marked import PROGRAMS, succeed

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="watermarks that can be reset are Linux's"
)

WRITING = """
place = os.open(os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "data.bin"), os.O_WRONLY | os.O_CREAT)
def spend(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
"""


def test_each_operation_of_20_us_shows_the_writes_inside_it(tmp_path: Path) -> None:
    program = succeed(
        WRITING
        + """
for n in range(200):
    spend(110e-6)
    with operation("one", n=n):
        os.write(place, bytes(1000 + n))
        spend(20e-6)
    spend(110e-6)
    os.write(place, bytes(7))
    with operation("idle"):
        spend(20e-6)
""",
        tmp_path,
    )
    assert [one.closing["write_chars"] for one in program.named("one")] == [1000 + n for n in range(200)]
    assert {one.closing["write_chars"] for one in program.named("idle")} == {0}


def test_nothing_is_lost_or_reported_twice_however_short_operations_are(tmp_path: Path) -> None:
    program = succeed(
        WRITING
        + """
with operation("all"):
    for n in range(3000):
        with operation("short"):
            os.write(place, b"x")
""",
        tmp_path,
    )
    told = [one.closing["write_chars"] for one in program.named("short")]
    assert program.one("all").closing["write_chars"] == 3000
    assert sum(told) <= 3000
    assert max(told) <= 3000


def test_memory_between_operations_is_in_the_record(tmp_path: Path) -> None:
    """Of whichever thread, also of one that has ended when the next operation reads the watermark."""
    program = succeed(
        """
        for n in range(20):
            with operation("before"):
                pass
            thread = threading.Thread(target=blip, args=(30,))
            thread.start(); thread.join()
            with operation("after"):
                pass
        """,
        tmp_path,
    )
    assert len(program.named("after")) == 20
    for one in program.named("after"):
        assert one.opening["segment"] >= one.opening["rss"] + (29 << 20)
        assert one.closing["certainty"] == counters.of_process(one.closing["peak"])
        assert one.grown < 1


@pytest.mark.parametrize("limit", [64, 600, 4096])
def test_files_that_get_our_descriptors_stay_untouched(tmp_path: Path, limit: int) -> None:
    """The program closes all and opens others, at once; with a low limit it gets our very numbers."""
    program = succeed(PROGRAMS / "takes_our_descriptors.py", tmp_path, arguments=(str(limit),))
    for name in ("before", "after", "last"):
        found = program.named(name)
        assert len(found) == 50
        assert all(one.closing for one in found)
    assert all(2 < one.grown < 4 for one in program.named("last"))


def test_children_are_counted_where_they_are_reaped(tmp_path: Path) -> None:
    program = succeed(
        """
        for n in range(10):
            with operation("quiet"):
                time.sleep(0.001)
            with operation("reaps"):
                child = os.fork()
                if not child:
                    end = time.process_time() + 0.03
                    while time.process_time() < end:
                        pass
                    os._exit(0)
                os.waitpid(child, 0)
        """,
        tmp_path,
    )
    assert len(program.named("reaps")) == len(program.named("quiet")) == 10
    for one in program.named("reaps"):
        assert one.closing["cpu_user"] + one.closing["cpu_system"] >= 0.028
    for one in program.named("quiet"):
        assert one.closing["cpu_user"] + one.closing["cpu_system"] < 0.02


@pytest.mark.parametrize("at", ["opening", "closing"])
def test_what_a_boundary_misses_is_in_the_bounds_of_the_operations_around(tmp_path: Path, at: str) -> None:
    """Memory comes and goes between the reading of the watermark and its reset, at a boundary inside an operation."""
    program = succeed(
        f"""
        import ctypes
        library = ctypes.CDLL(None)
        with operation("warm"):
            pass
        with operation("around"):
            if {at == "opening"}:
                library.disturb(40)
            with operation("inside"):
                if {at == "closing"}:
                    library.disturb(40)
        with operation("after"):
            pass
        """,
        tmp_path,
        **disturb.variables(),
    )
    around = program.one("around")
    assert around.grown < 20, "the blip was to be missed"
    assert around.closing["high"] >= around.opening["rss"] + (39 << 20)
    assert around.closing["certainty"] == "interval"
    after = program.one("after")
    assert after.closing["certainty"] == counters.of_process(after.closing["peak"])
    assert after.grown < 1


def test_what_a_boundary_misses_does_not_matter_where_the_peak_is_higher(tmp_path: Path) -> None:
    program = succeed(
        """
        import ctypes
        library = ctypes.CDLL(None)
        with operation("warm"):
            pass
        with operation("around"):
            library.disturb(40)
            with operation("inside"):
                pass
            blip(100)
        """,
        tmp_path,
        **disturb.variables(),
    )
    around = program.one("around").closing
    assert around["certainty"] == counters.of_process(around["peak"])
    assert around["high"] - around["low"] <= 2 * rss_error() + (1 << 19)


def test_a_peak_outlives_the_descriptors_that_tell_it(tmp_path: Path) -> None:
    """The program closes all descriptors inside an operation: the watermark is found again, not begun again."""
    program = succeed(
        """
        with operation("warm"):
            time.sleep(0.001)
        with operation("around"):
            with operation("inside"):
                blip(60)
                os.closerange(3, 4096)
                time.sleep(0.001)
        """,
        tmp_path,
    )
    for name in ("inside", "around"):
        assert 59.5 <= program.one(name).grown < 62

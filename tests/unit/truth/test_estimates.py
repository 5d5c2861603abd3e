"""Best estimates, by table of cases."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Peak
from otel_memwatch.truth.estimates import likely_between_samples, likely_cache, likely_of_any, with_estimate
from otel_memwatch.truth.tree_estimates import (
    brought_private,
    corrected,
    correction,
    files_with_deleted,
    frees_memory,
    is_reserved,
    likely_burst,
    likely_files,
    likely_grown,
    likely_kept,
    likely_of_member,
    likely_shared,
)
from tests.support.run_directory import MIB

FLOOR = 10


@pytest.mark.parametrize(
    ("attained", "file", "facts", "likely"),
    [
        (200, 6, {}, 194),
        (200, 150, {}, 50),
        (200, None, {}, 0),
        (FLOOR / MIB, 0, {"faults": 9}, 0),
        # a command smaller than its launcher: only its page faults are known
        (FLOOR / MIB, None, {"faults": 2304, "alone": True}, 7.5),
        (FLOOR / MIB, None, {"faults": 320, "alone": True}, 1.25 / 16),
        (FLOOR / MIB, None, {"alone": True}, 0),
        # single pages
        (200, 6, {"faults": 60_000}, 194),
        (300, None, {"faults": 80_000}, 300),
        # huge pages: files cannot explain it
        (300, 6, {"faults": 800}, 294),
        (300, 6, {"faults": 800, "bound": 310 * MIB}, 294),
        # no huge pages: a page fault maps more than 16 pages of a file (Linux 6.18)
        (300, 6, {"faults": 800, "bound": 8 * MIB}, 800 / 256 / 2),
        # a mapped log file, of which no sample saw anything
        (250, None, {"faults": 5120}, (16 * 20 - 250) / 15),
        (250, 6, {"faults": 4000}, 4000 / 256 / 16),
        # a linker writes 140 MiB through a mapping, a page for each fault
        (280, 2, {"faults": 40_000, "written_by_mapping": 140 * MIB}, 138),
        (280, 200, {"faults": 40_000, "written_by_mapping": 140 * MIB}, 0),
    ],
)
def test_likely_of_any(attained: float, file: int | None, facts: dict[str, int], likely: float) -> None:
    files, most = None if file is None else file * MIB, int(attained * MIB)
    assert likely_of_any(most, files, FLOOR, **facts) == pytest.approx(likely * MIB, abs=1)


@pytest.mark.parametrize(
    ("top", "before", "after", "likely"),
    [(195, 20, 108, 87), (195, 108, 20, 87), (100, 20, 120, 0), (None, 1, 1, None), (9, None, 1, None), (9, 1, None, None)],
)  # fmt: skip
def test_likely_between_ticks(
    top: int | None, before: int | None, after: int | None, likely: int | None
) -> None:
    assert likely_between_samples(top, before, after) == likely


@pytest.mark.parametrize(
    ("brought", "grown", "snapshot", "kept"),
    [(100, 4, 120, 96), (100, -50, 120, 100), (500, 0, 120, 120), (4, 30, 120, 0)],
)
def test_likely_kept(brought: int, grown: int, snapshot: int, kept: int) -> None:
    assert likely_kept(brought, grown, snapshot) == kept


@pytest.mark.parametrize(
    ("least", "most", "factor"), [(140, 150, 0.75), (140, 210, 1.0), (240, 250, 1.2), (0, 250, 1.0)]
)
def test_correction(least: int, most: int, factor: float) -> None:
    assert correction(least, most, 200) == factor


@pytest.mark.parametrize(
    ("held", "brought", "shared", "private"),
    [(9, 62, 60, 2), (9, 5, 0, 5), (9, 90, 60, 9), (9, 5, 32, 3), (9, 1, 32, 0)],
)
def test_brought_private(held: int, brought: int, shared: int, private: int) -> None:
    assert brought_private(held, brought, shared) == private


@pytest.mark.parametrize(("guess", "likely"), [(10, 7), (5, 3.5), (26, 23)])
def test_memory_beyond_that_of_the_reading_is_not_corrected(guess: int, likely: float) -> None:
    assert corrected(guess * MIB, 0.7, 10 * MIB) == pytest.approx(likely * MIB, abs=1)


@pytest.mark.parametrize(
    ("shared", "brought", "huge", "burst"),
    [
        (60, 100, 0, 6),
        (0, 100, 0, 66),
        (90, 100, 0, 0),
        # mapped files that no sample saw
        (0, 20, 0, (16 * 20 - 80) // 15 - 10),
        # and huge pages of other programs, too few for the burst
        (0, 20, 40, (16 * 20 - 80) // 15 - 10),
        # huge pages: those that it holds, and those of the burst
        (0, 9, 0, 66),
        (0, 4, 0, 66),
        (0, 20, 70, 66),
        # large folios of a file
        (0, 4, 6, 0),
    ],
)
def test_likely_burst(shared: int, brought: int, huge: int, burst: int) -> None:
    assert likely_burst(80, 10, 4, shared, brought, huge=huge) == burst


@pytest.mark.parametrize(
    ("before", "now", "risen", "rise", "reserved"),
    [
        (140, 220, 0, 300, True),
        (140, 220, 80, 300, False),  # filled as it is mapped
        (140, 220, 0, 150, False),  # the machine was read earlier
        (0, 220, 0, 300, False),  # it was filled since the sample before
        (140, 150, 0, 300, False),
    ],
)
def test_is_reserved(before: int, now: int, risen: int, rise: int, reserved: bool) -> None:
    assert is_reserved(before * MIB, now * MIB, risen * MIB, rise * MIB) == reserved
    assert likely_shared(300, 220, 290, 220, reserved=reserved) == (290 if reserved else 220)


@pytest.mark.parametrize(
    ("held", "brought", "new", "grown"),
    [(34, 60, 12, 6), (60, 34, 12, 12), (0, 0, 12, 0), (34, 60, 0, 0)],
    ids=["beside files", "with its parent's", "not read", "at rest"],
)
def test_likely_grown(held: int, brought: int, new: int, grown: int) -> None:
    assert likely_grown(held, brought, new) == grown


@pytest.mark.parametrize(
    ("before", "risen", "written", "files"),
    [
        (100, 50, 52, 150),
        (100, 50, 40, 150),  # many small files
        (100, 50, 2, 100),
        (100, 0, 200, 100),
        (100, -60, 60, 40),
        (100, -160, 0, 0),
        (0, 50, -9, 0),
    ],
)
def test_likely_files(before: int, risen: int, written: int, files: int) -> None:
    assert likely_files(before, risen, written) == files


@pytest.mark.parametrize(
    ("before", "now", "written", "most"),
    [(40, 0, 20, 60), (40, 60, 20, 60), (0, 0, 200, 0), (40, 10, -5, 40)],
)
def test_files_with_deleted(before: int, now: int, written: int, most: int) -> None:
    assert files_with_deleted(before, now, written) == most


@pytest.mark.parametrize(
    ("file", "usage", "private", "cache"),
    [
        (20, 107, 106, 20),
        (None, 107, 106, 1),
        (None, 107, 110, 0),
        (None, None, 106, None),
        (None, 107, None, None),
    ],
)
def test_likely_cache(file: int | None, usage: int | None, private: int | None, cache: int | None) -> None:
    assert likely_cache(file, usage, private) == cache


@pytest.mark.parametrize(("now", "frees"), [(60, True), (75, False), (90, False), (0, False)])
def test_a_process_that_ends_frees_no_memory(now: int, frees: bool) -> None:
    assert frees_memory(80, now) is frees


@pytest.mark.parametrize(
    ("most", "mapped", "rise", "before", "shared"),
    [
        (31, 12, 31, 30, 30),
        (60, 180, 60, 180, 60),
        (20, 0, 20, 30, 0),
        (40, 12, None, 12, 12),
        (10, 8, 0, 8, 0),
    ],
)
def test_likely_shared(most: int, mapped: int, rise: int | None, before: int, shared: int) -> None:
    assert likely_shared(most, mapped, rise, before) == shared


@pytest.mark.parametrize(
    ("frees", "copied", "likely"), [(False, 0, 30), (True, 0, 24), (True, 5, 29), (True, 90, 84)]
)
def test_likely_of_member(frees: bool, copied: int, likely: int) -> None:
    assert likely_of_member(24, 84, 30, 60, 71, family_frees=frees, copied=copied) == likely


@pytest.mark.parametrize(
    ("seen", "between", "at", "low_at"),
    [
        (85, 0, 3.5, 1.5),
        (70, 0, 1.5, None),  # the lower bound is the estimate
        (0, 0, 1.5, None),
        (85, 194, None, 1.5),  # between two samples
    ],
)
def test_an_estimate_keeps_the_moment_of_the_lower_bound(
    seen: int, between: int, at: float | None, low_at: float | None
) -> None:
    peak = with_estimate(Peak.interval(80 * MIB, 300 * MIB, at=1.5), seen * MIB, 3.5, between * MIB)
    assert (peak.at, peak.low_at) == (at, low_at)

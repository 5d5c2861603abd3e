"""Best estimates, by table of cases."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.estimates import likely_between_ticks, likely_of_any
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
    assert likely_between_ticks(top, before, after) == likely

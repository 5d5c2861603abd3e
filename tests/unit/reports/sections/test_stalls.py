"""Reasons for which a run was slow, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.reports.sections.stalls import of_operation, sentences
from otel_memwatch.run.stalls import Stalls

MIB = 1 << 20

CASES = [
    (Stalls(), []),
    (Stalls(memory=0.05, cpu=0.05), []),
    (
        Stalls(memory=0.91, reread_bytes=5376 * MIB, files_bytes=256 * MIB, short_bytes=159 * MIB),
        ["91 % of the time re-reading 256.0 MiB of files (22 times): short of 159.0 MiB"],
    ),
    (
        Stalls(memory=0.84, reread_bytes=1900 * MIB),
        ["84 % of the time short of memory: read 1.86 GiB of files again"],
    ),
    (
        Stalls(memory=0.24, unwritten_bytes=9 * MIB),
        ["24 % of the time short of memory: data to be written (9.0 MiB) filled it"],
    ),
    (
        Stalls(writes=0.24, unwritten_bytes=9 * MIB),
        ["perhaps short of memory: data to be written filled it, up to 24 % of the time"],
    ),
    (
        Stalls(memory=0.0, cpu=0.38, cores_allowed=2.0),
        ["used 1.9 of 2.0 cores allowed, throttled at least 38 % of the time"],
    ),
    (
        Stalls(cpu=0.62, cores_allowed=20.15),
        ["used 1.9 of 20.1 cores allowed, throttled at least 62 % of the time"],
    ),
    (
        Stalls(cpu=0.0, contention=0.4),
        ["waited at least 40 % of the time for processors that other programs used"],
    ),
    (Stalls(contention=0.2), []),
    (Stalls(cpu=0.62), ["throttled at least 62 % of the time"]),
]


@pytest.mark.parametrize(("stalls", "words"), CASES)
def test_a_slow_run_says_why(stalls: Stalls, words: list[str]) -> None:
    run: Any = SimpleNamespace(stalls=stalls, seconds=10.0, cores=1.9)
    assert sentences(run) == words


def test_an_operation_says_for_what_it_waited() -> None:
    assert of_operation({"memory": 0.91, "cpu": None, "contention": 0.2}) == "91 % of it short of memory"
    assert of_operation({"memory": 0.0, "cpu": 0.0, "contention": 0.6}) == "60 % of it waiting for processors"

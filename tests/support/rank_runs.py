"""Runs of a group whose memory over time is known, as their monitors would have recorded them."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otel_memwatch import catalog
from tests.support.run_directory import MIB, RunDirectory, column

BEGIN = 1_767_225_600.0
"""True time, in Unix seconds, at which groups of the builder start."""

COLUMNS = (
    column(catalog.MEMWATCH_TREE_DISK_IO, disk__io__direction="read"),
    column(catalog.MEMWATCH_TREE_DISK_IO, disk__io__direction="write"),
    column(catalog.MEMWATCH_TREE_PAGING_FAULTS, system__paging__fault__type="minor"),
    column(catalog.MEMWATCH_TREE_PAGING_FAULTS, system__paging__fault__type="major"),
    column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE),
    column(catalog.MEMWATCH_CGROUP_MEMORY_PEAK),
    column(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW),
    column(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP),
    column(catalog.MEMWATCH_CGROUP_MEMORY_FILE),
    column(catalog.MEMWATCH_CGROUP_PAGING_FAULTS),
    column(catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE),
    column(catalog.MEMWATCH_CGROUP_MEMORY_ANON),
)


class Course(NamedTuple):
    """Memory over time: from each moment on so many bytes; nothing before the first and from the last on."""

    moments: Sequence[float]
    """Seconds after `BEGIN`, rising."""
    sizes: Sequence[int]

    @property
    def seconds(self) -> float:
        return self.moments[-1] - self.moments[0]

    def at(self, moment: float) -> int:
        index = bisect_right(self.moments, moment) - 1
        return 0 if index < 0 or index == len(self.moments) - 1 else self.sizes[index]

    def most(self, start: float, end: float) -> int:
        inside = [
            size for moment, size in zip(self.moments, self.sizes, strict=True) if start < moment <= end
        ]
        return max([self.at(start), *inside])

    def gained(self, moment: float) -> int:
        """Bytes that came so far."""
        total = before = 0
        for when, size in zip(self.moments, self.sizes, strict=True):
            if when > moment:
                break
            total, before = total + max(0, size - before), size
        return total


def largest_sum(courses: Sequence[Course]) -> int:
    """The truth: the most that all had together at one instant."""
    return max(sum(course.at(moment) for course in courses) for one in courses for moment in one.moments)


class Clock(NamedTuple):
    """A host's clock."""

    boot: str = "one"
    offset: float = 0.0
    """Seconds by which its wall clock is ahead of the truth."""
    monotonic: float = 5000.0
    """Its monotonic clock at `BEGIN`."""


def rank_run(
    path: Path,
    course: Course,
    *,
    rank: int | None,
    size: int | None = None,
    group: str = "train",
    clock: Clock = Clock(),  # noqa: B008 - a tuple
    host: str | None = None,
    interval: float = 0.1,
    lot: random.Random | None = None,
    **fields: Any,
) -> RunDirectory:
    """The record of one rank; `fields` replace those of run.json, those of "group" by `identity`."""
    lot = lot or random.Random(str(path))
    began, ended = course.moments[0], course.moments[-1]

    def both(moment: float) -> dict[str, float]:
        return {"wall": BEGIN + moment + clock.offset, "monotonic": clock.monotonic + moment}

    largest = max(course.sizes)
    identity = {"group": group, "launcher": "env", "rank": rank, "local_rank": None, "size": size, "first": 0, "step": 1,
                "node": None, "attempt": 0, **fields.pop("identity", {})}  # fmt: skip
    peak = {
        "bytes": largest,
        "certainty": "exact",
        "low": largest,
        "high": largest + MIB // 4,
        "at": 0.0,
        "how": "cgroup watermark",
    }
    made = RunDirectory(
        path,
        **{
            "id": path.name,
            "own_cgroup": "/sys/fs/cgroup/x",
            "fault_bytes": 4096,
            "page_bytes": 4096,
            "started": both(began),
            "ended": both(ended),
            "interval": interval,
            "group": identity,
            "clock": {"boot_id": clock.boot, "monotonic_offset": 0.0},
            "host": {"name": host or f"node-{clock.boot}", "system": "Linux", "release": "6.18", "machine": "x86_64", "cpus": 1, "memory_bytes": 1 << 34},
            "peaks": {"main": None, "process": None, "tree": peak, "cgroup": None, "gpu": {}, "hugetlb": None},
            "totals": {},
            "quality": {},
            "trace": {"trace_id": f"{lot.getrandbits(127) + 1:032x}", "span_id": f"{lot.getrandbits(63) + 1:016x}", "parent_span_id": None},
            **fields,
        },
    )  # fmt: skip
    made.columns(COLUMNS)
    moments = [began + 0.001]
    while moments[-1] + interval < ended:
        moments.append(moments[-1] + interval * (1 + lot.uniform(-0.02, 0.02)))
    if moments[-1] < ended:
        moments.append(ended)
    before, most = began, 0
    for moment in moments:
        window = course.most(before, moment)
        most = max(most, window)
        now, faults = course.at(moment), math.ceil(course.gained(moment) / 4096)
        row = (round(clock.monotonic + moment, 4), 0, 0, faults, 0, now, most, window, 0, 0, faults, 0, now)
        made.append("samples.jsonl", list(row))
        before = moment
    return made

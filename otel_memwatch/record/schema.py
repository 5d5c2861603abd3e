"""Types of the lines of a record: each field is declared once, and readers use its name.

`FIELDS` maps each field of a `Sample` to columns of `samples.jsonl`, for any set and order of columns.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime import typed
from otel_memwatch.runtime.light import itemgetter, lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from otel_memwatch.model import Attributes, Column, Value

_READ, _WRITE = ("disk.io.direction", "read"), ("disk.io.direction", "write")

FIELDS: dict[str, tuple[str, tuple[str, str] | None]] = {
    "main": (catalog.PROCESS_MEMORY_USAGE, None),
    "main_peak": (catalog.MEMWATCH_PROCESS_MEMORY_PEAK, None),
    "main_file": (catalog.MEMWATCH_PROCESS_MEMORY_LINUX_FILE, None),
    "rss": (catalog.MEMWATCH_TREE_MEMORY_USAGE, None),
    "virtual": (catalog.MEMWATCH_TREE_MEMORY_VIRTUAL, None),
    "pss": (catalog.MEMWATCH_TREE_MEMORY_PSS, None),
    "hugetlb": (catalog.MEMWATCH_TREE_MEMORY_HUGETLB, None),
    "shared": (catalog.MEMWATCH_TREE_MEMORY_SHMEM, None),
    "processes": (catalog.MEMWATCH_TREE_PROCESS_COUNT, None),
    "threads": (catalog.MEMWATCH_TREE_THREAD_COUNT, None),
    "descriptors": (catalog.MEMWATCH_TREE_FILE_DESCRIPTOR_COUNT, None),
    "unseen": (catalog.MEMWATCH_TREE_UNOBSERVED, None),
    "unseen_faults": (catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS, None),
    "faults": (catalog.MEMWATCH_TREE_PAGING_FAULTS, None),
    "major_faults": (catalog.MEMWATCH_TREE_PAGING_FAULTS, ("system.paging.fault.type", "major")),
    "bound": (catalog.MEMWATCH_TREE_MEMORY_BOUND, None),
    "needed": (catalog.MEMWATCH_TREE_MEMORY_NEEDED, None),
    "needed_low": (catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW, None),
    "needed_high": (catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH, None),
    "needed_left": (catalog.MEMWATCH_TREE_MEMORY_NEEDED_LEFT, None),
    "needed_shares": (catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED, None),
    "needed_factor": (catalog.MEMWATCH_TREE_MEMORY_NEEDED_FACTOR, None),
    "usage": (catalog.MEMWATCH_CGROUP_MEMORY_USAGE, None),
    "window": (catalog.MEMWATCH_CGROUP_MEMORY_WINDOW, None),
    "gap": (catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP, None),
    "watermark": (catalog.MEMWATCH_CGROUP_MEMORY_PEAK, None),
    "file": (catalog.MEMWATCH_CGROUP_MEMORY_FILE, None),
    "locked": (catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE, None),
    "anon": (catalog.MEMWATCH_CGROUP_MEMORY_ANON, None),
    "unwritten": (catalog.MEMWATCH_CGROUP_MEMORY_UNWRITTEN, None),
    "mapped": (catalog.MEMWATCH_CGROUP_MEMORY_MAPPED, None),
    "shmem": (catalog.MEMWATCH_CGROUP_MEMORY_SHMEM, None),
    "kernel": (catalog.MEMWATCH_CGROUP_MEMORY_KERNEL, None),
    "cgroup_swap": (catalog.MEMWATCH_CGROUP_MEMORY_SWAP, None),
    "cgroup_faults": (catalog.MEMWATCH_CGROUP_PAGING_FAULTS, None),
    "outside": (catalog.MEMWATCH_CGROUP_OUTSIDE, None),
    "limit": (catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, ("memwatch.cgroup.limit.type", "max")),
    "swap": (catalog.SYSTEM_PAGING_USAGE, ("system.paging.state", "used")),
    "system": (catalog.SYSTEM_MEMORY_USAGE, ("system.memory.state", "used")),
    "cpu_seconds": (catalog.MEMWATCH_TREE_CPU_TIME, None),
    "user_seconds": (catalog.MEMWATCH_TREE_CPU_TIME, ("cpu.mode", "user")),
    "read_bytes": (catalog.MEMWATCH_TREE_DISK_IO, _READ),
    "write_bytes": (catalog.MEMWATCH_TREE_DISK_IO, _WRITE),
    "read_chars": (catalog.MEMWATCH_TREE_SYSCALL_IO, _READ),
    "write_chars": (catalog.MEMWATCH_TREE_SYSCALL_IO, _WRITE),
    "moved": (catalog.MEMWATCH_TREE_DISK_IO, None),
    "reading": (catalog.MEMWATCH_SAMPLER_READING_DURATION, None),
}
"""Metric of each field, and the attribute of its columns; without an attribute, all columns of the metric.

Several columns are summed: `faults` counts minor and major ones, like the cgroup; `moved` is read and written bytes.
"""

if TYPE_CHECKING:

    class Sample:
        """Declaration for type checkers: every other field is a value."""

        _fields: tuple[str, ...]
        time: float
        row: Sequence[Value]

        def __init__(self, time: float, **fields: Value) -> None: ...

        def __getattr__(self, field: str) -> Value: ...

        def _replace(self, **fields: Value) -> Sample: ...

        @classmethod
        def _make(cls, values: Iterable[object]) -> Sample: ...

else:
    Sample = typed.named_tuple(
        __name__, "Sample", ("time", *FIELDS, "row"), {**dict.fromkeys(FIELDS), "row": ()}
    )
    Sample.__doc__ = """All that was read at one moment.

    `time` is in monotonic seconds and `row` holds time and values of all columns; the other fields are those of
    `FIELDS`, in bytes, seconds or pages as their metric has them. `None`: not known.
    """


def whole_of(value: Value) -> int | None:
    """Return a field of a sample as a whole number; `None`: not known."""
    return None if value is None else int(value)


def columns_of(field: str, columns: Iterable[Column]) -> list[Column]:
    """Return the columns whose sum is a field of a sample; none if the record lacks it."""
    metric, attribute = FIELDS[field]
    return [c for c in columns if c.metric == metric and (attribute is None or attribute in c.attributes)]


def fields_in(columns: Collection[Column]) -> frozenset[str]:
    """Return the fields that a record with these columns has."""
    return frozenset(field for field, found in _by_field(tuple(columns)) if found)


@lru_cache(1)
def _by_field(columns: tuple[Column, ...]) -> list[tuple[str, list[Column]]]:
    """Return each field with its columns. A run asks four times for the same ones."""
    of_metric: dict[str, list[Column]] = {}
    for column in columns:
        of_metric.setdefault(column.metric, []).append(column)
    return [(field, columns_of(field, of_metric.get(metric, ()))) for field, (metric, _) in FIELDS.items()]


def sample_maker(columns: Sequence[Column]) -> Callable[[Sequence[Value]], Sample]:
    """Return a function that makes a `Sample` of a row of time and values (3 us).

    A row may be shorter than the columns: the rest is unknown.
    """
    # A field without a column takes the value after the last one, which is always unknown.
    width = len(columns) + 1
    index = {column: place for place, column in enumerate(columns, 1)}
    places: list[int] = [0]
    more: list[tuple[int, int]] = []
    for number, (_, of_field) in enumerate(_by_field(tuple(columns)), 1):
        found = [index[column] for column in of_field]
        places.append(found[0] if found else width)
        more += [(number, place) for place in found[1:]]
    pick: Callable[[Sequence[Value]], Any] = itemgetter(*places)
    make: Callable[..., Any] = tuple.__new__

    def sample(row: Sequence[Value]) -> Sample:
        # Not a table of paddings: for the 100 000 columns that a record may declare, it takes 40 GB.
        padded = (*row, *(None,) * (width + 1 - len(row)))
        values = [*pick(padded), padded]
        for number, place in more:
            sum_so_far, value = values[number], padded[place]
            values[number] = None if sum_so_far is None or value is None else sum_so_far + value
        made: Sample = make(Sample, values)
        return made

    return sample


def series_picker(
    columns: Sequence[Column], metrics: Collection[str]
) -> tuple[list[tuple[str, Attributes]], Callable[[Sequence[Value]], tuple[Value, ...]]]:
    """Return metric and attributes of each column of these metrics, and a function that picks their values.

    The function takes a `Sample.row`. It serves metrics with attributes that only the record knows, such as devices.
    """
    found = [(place, column) for place, column in enumerate(columns, 1) if column.metric in metrics]
    keys = [(column.metric, column.attributes) for _, column in found]
    if len(found) > 1:
        pick: Callable[[Sequence[Value]], Any] = itemgetter(*(place for place, _ in found))
        return keys, pick
    return keys, lambda row: tuple(row[place] for place, _ in found)

"""The stall ledger, from samples."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.stall_ledger import StallLedger
from otel_memwatch.run.stalls import Stalls
from tests.support.run_directory import column

MIB = 1 << 20
PAGES = MIB // 4096
COLUMNS = [
    column("memwatch.tree.cpu.time", cpu__mode="user"),
    column("memwatch.tree.disk.io", disk__io__direction="read"),
    column("memwatch.tree.syscall.io", disk__io__direction="read"),
    column("memwatch.tree.memory.virtual"),
    column("memwatch.cgroup.memory.usage"),
    column("memwatch.cgroup.memory.file"),
    column("memwatch.cgroup.memory.limit", memwatch__cgroup__limit__type="max"),
    column("memwatch.cgroup.paging.refaults"),
    column("memwatch.tree.paging.faults", system__paging__fault__type="major"),
    column("memwatch.cgroup.cpu.throttled"),
    column("memwatch.cgroup.cpu.limit"),
    column("memwatch.cgroup.pressure.time", memwatch__pressure__resource="io", memwatch__pressure__stall_type="some"),
]  # fmt: skip
INFO: dict[str, Any] = {
    "started": {"monotonic": 100.0},
    "interval": 0.1,
    "own_cgroup": "/x",
    "cgroup_version": 2,
    "page_bytes": 4096,
    "monitor": {"mode": "wrap"},
    "host": {"cpus": 4, "memory_bytes": 8 << 30, "swap_bytes": 0},
}


def on(processors: int) -> RunConditions:
    """The conditions of a run on so many processors."""
    return RunConditions.of(INFO | {"host": INFO["host"] | {"cpus": processors}})


def ledger_of(
    rows: list[tuple[float | None, ...]], info: dict[str, Any] | None = None, seconds: float | None = None
) -> Stalls:
    """The stalls of rows: time since the start, then the values of COLUMNS, with sizes in MiB and refaults too."""
    ledger = StallLedger(COLUMNS, RunConditions.of(info or INFO))
    make = sample_maker(COLUMNS)
    for time, user, *sizes, faults, throttled, cores, pressure in rows:
        read, chars, virtual, usage, file, limit = [None if s is None else s * MIB for s in sizes[:6]]
        refaults = None if sizes[6] is None else sizes[6] * PAGES
        assert time is not None
        ledger.add(
            make((100.0 + time, user, read, chars, virtual, usage, file, limit, refaults, faults, throttled, cores, pressure))
        )  # fmt: skip
    last = rows[-1][0]
    assert last is not None
    return ledger.stalls(seconds or last)


def run(read: float, refaults: float, early: float = 0.0, *, chars: float = 0.0, limit: float | None = 104) -> Stalls:  # fmt: skip
    """A run of 6 s in a limit of 104 MiB; its first 98 MiB of page cache, then `read` and `refaults` MiB in all."""
    first = (1.0, 0.05, 98.0, min(chars, 98.0), 300.0, 80.0, 75.0, limit, early, 12, 0.0, None, None)
    rows: list[tuple[float | None, ...]] = [first]
    for step in range(1, 51):
        part = step / 50
        rows.append(
            (1 + step / 10, 0.05 + 0.04 * part, 98 + (read - 98) * part, chars * part, 300.0, 103.0, 98.0, None,
             early + (refaults - early) * part, 12 + 300 * part, None, None, None)
        )  # fmt: skip
    return ledger_of(rows)


def test_a_run_that_reads_its_file_again_and_again_is_short_of_memory() -> None:
    found = run(2400, 2144)
    assert found.memory == pytest.approx(0.8, abs=0.1)
    assert found.reread_bytes == pytest.approx(2144 * MIB, rel=0.01)
    assert found.files_bytes == pytest.approx(256 * MIB, rel=0.01)
    assert found.short_bytes == pytest.approx(158 * MIB, rel=0.01)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("scan", run(2400, 0, chars=2400)),
        ("scan through a mapping", run(2400, 0)),
        ("copy that loses some pages read ahead", run(2400, 90, chars=2400)),
        ("copy of a file in memory that loses a few pages", run(98 + 4.1, 4.1, chars=354)),
        ("cold start without a limit", run(98, 0, limit=None)),
        ("refaults of an earlier run, without a limit", run(2400, 2400, 98, limit=None)),
    ],
)
def test_bytes_that_are_read_once_are_no_shortage(name: str, found: Stalls) -> None:
    assert found.memory == 0.0, name
    assert (found.files_bytes, found.short_bytes) == (None, None)


def test_refaults_of_an_earlier_run_prove_nothing() -> None:
    """The kernel counts pages that an earlier run's cgroup dropped; that run had read the same file."""
    assert run(2400, 2400, 98, chars=2400).memory is None  # it may be a scan
    again = run(2400, 2400, 98)  # through mappings, more than the address space can hold
    assert again.memory is not None
    assert again.memory > 0.5
    assert (again.files_bytes, again.short_bytes) == (None, None)
    assert again.reread_bytes == pytest.approx(2100 * MIB, abs=4096)


def test_refaults_are_few_if_the_kernel_forgets_the_pages_that_it_dropped() -> None:
    """A mapped file of 256 MiB at 8 MiB: 100 reads in 7 s instead of 800 000. Of 552 MiB read, only 126 are refaults."""
    rows: list[tuple[float | None, ...]] = [(0.8, 0.0, 4, 1, 13, 8, 5, 8, 0, 5, None, None, None)]
    rows += [
        (
            0.8 + step / 10,
            0.0,
            9 * step,
            1,
            283,
            8,
            3,
            None,
            126 * step / 61,
            5 + 1.5 * step,
            None,
            None,
            None,
        )
        for step in range(1, 62)
    ]
    found = ledger_of(rows)
    assert found.memory is not None
    assert found.memory > 0.3
    assert found.reread_bytes == pytest.approx(265 * MIB, abs=MIB)
    assert (found.files_bytes, found.short_bytes) == (None, None)


COPIES = {
    "after a copy that dropped the file": [
        (0.16, 51.8, 0, 45.1), (0.27, 69.6, 0, 57.1), (0.36, 100.0, 0, 83.1), (0.46, 158.3, 0, 124.1),
        (0.57, 201.4, 0, 155.8), (0.66, 269.1, 0, 218.4), (0.76, 329.4, 0, 264.3), (0.87, 451.2, 0, 367.6),
        (0.96, 551.2, 0, 467.6), (1.06, 613.5, 0, 529.9), (1.12, 622.8, 256.0, 539.2),
    ],
    "from a cold page cache": [
        (0.27, 142.3, 0, 82.3), (0.42, 158.8, 0, 106.8), (0.71, 187.5, 0, 120.5), (0.89, 290.3, 0, 196.3),
        (1.01, 332.0, 0, 227.5), (1.27, 456.8, 0, 298.3), (1.57, 669.6, 0, 438.6), (2.02, 728.8, 256.0, 474.8),
    ],
}  # fmt: skip
"""Recorded copies of 256 MiB at a limit of 18 MiB: seconds, then MiB read from storage, passed to read calls, and refaulted.
The kernel reads up to 8 MiB ahead; one system call copies the file, and is counted at its end."""


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("written", [0.0, 256.0])
def test_a_copy_that_loses_pages_read_ahead_is_not_slow(
    copy: list[tuple[float, float, float, float]], written: float
) -> None:
    columns = [*COLUMNS, column("memwatch.tree.syscall.io", disk__io__direction="write")]
    ledger = StallLedger(columns, RunConditions.of(INFO))
    make = sample_maker(columns)
    assert copy
    for time, read, chars, refaults in copy:
        ledger.add(
            make((100.0 + time, 0.0, read * MIB, chars * MIB, 6.0 * MIB, 17.9 * MIB, 17.3 * MIB, 18.0 * MIB,
                  refaults * PAGES, 0, None, None, None, min(written, chars) * MIB))
        )  # fmt: skip
        assert not ledger.stalls(time).memory


AHEAD = {
    "copy at 24 MiB": (0.78, 0.02, 0.2, 0.12, 771, 256, 520, 0.2, True),
    "copy at 48 MiB": (0.77, 0.02, 0.15, 0.2, 481, 256, 225, 0.2, True),
    "copy at 96 MiB beside busy programs": (1.5, 0.02, 0.15, 1.2, 344, 256, 88, 0.2, False),
    "checksum at 24 MiB": (0.55, 0.4, 0.1, 0.02, 592, 256, 336, 0.03, False),
    "checksum at 24 MiB beside busy programs": (1.64, 0.4, 0.1, 1.1, 592, 256, 336, 0.3, False),
    "copy in one call that has not ended": (0.5, 0.01, 0.1, 0.05, 400, 0, 380, 0.2, False),
    "copy after one that dropped the file": (0.5, 0.01, 0.1, 0.05, 256, 256, 250, 0.2, False),
    "files read twice by calls without a sign of reclaim": (0.8, 0.02, 0.2, 0.1, 771, 256, 0, 0.2, False),
}
"""Measured runs that read 256 MiB from a disk that is read 8 MiB ahead: seconds, user, system and waiting seconds, MiB read,
passed to read calls, and refaulted, pressure of the machine, and whether a run without a limit is quicker."""


@pytest.mark.parametrize("run", AHEAD.values(), ids=AHEAD)
def test_pages_read_ahead_again_count_while_the_run_is_blocked(run: tuple[float, ...]) -> None:
    seconds, user, system, delay, read, chars, refaults, pressure, slow = run
    columns = [
        *COLUMNS[:-1],
        column("memwatch.tree.cpu.time", cpu__mode="system"),
        column("memwatch.tree.cpu.delay"),
        column("memwatch.system.cpu.busy"),
        *(column("memwatch.system.pressure.time", memwatch__pressure__resource=resource, memwatch__pressure__stall_type="some")
          for resource in ("memory", "io")),
    ]  # fmt: skip
    ledger, make = StallLedger(columns, on(2)), sample_maker(columns)
    for step in range(11):
        part = step / 10
        ledger.add(
            make((100.0 + seconds * part, user * part, read * part * MIB, chars * part * MIB, 6.0 * MIB, 24.0 * MIB, 20.0 * MIB,
                  24.0 * MIB, refaults * part * PAGES, 10 * part, None, None, system * part, delay * part,
                  (user + system + 1.1 * delay + 0.2) * part, pressure * seconds * part, pressure * seconds * part))
        )  # fmt: skip
    share = ledger.stalls(seconds).memory or 0.0
    assert (share >= 0.1) is slow
    assert share >= 0.1 or share < 0.06


CHECKSUMS = [
    (0.63, 0.05, 56, 37, 0.0, 57, 2, 494), (1.18, 0.09, 88, 58, 0.0, 89, 2, 494), (1.63, 0.14, 120, 96, 0.0, 103, 2, 494),
    (2.13, 0.25, 200, 170, 0.0, 103, 2, 494), (2.53, 0.37, 256, 256, 0.0, 103, 2, 494), (2.83, 0.45, 344, 316, 88.0, 103, 4, 583),
    (3.13, 0.52, 392, 368, 136.0, 103, 4, 583), (3.43, 0.62, 456, 436, 200.0, 103, 4, 583), (3.8, 0.7, 512, 512, 256.0, 103, 4, 583),
]  # fmt: skip
"""Recorded md5sum and sha1sum of 256 MiB, one after the other, at 104 MiB beside busy programs; without them it takes 1 s.
Seconds, user seconds, MiB read, passed to read calls, refaulted and charged, then page faults."""


@pytest.mark.parametrize(("io", "slow"), [(0.01, False), (0.5, True)])
def test_waiting_for_a_processor_is_not_short_of_memory(io: float, slow: bool) -> None:
    pressure = [
        column("memwatch.system.pressure.time", memwatch__pressure__resource=resource, memwatch__pressure__stall_type="some")
        for resource in ("cpu", "memory", "io")
    ]  # fmt: skip
    columns = [
        *COLUMNS[:-1],
        column("memwatch.tree.paging.faults", system__paging__fault__type="minor"),
        *pressure,
    ]
    ledger = StallLedger(columns, on(2))
    make = sample_maker(columns)
    for time, user, read, chars, refaults, usage, major, minor in CHECKSUMS:
        ledger.add(
            make((100.0 + time, user, read * MIB, chars * MIB, 6.0 * MIB, usage * MIB, usage * MIB, 104 * MIB,
                  refaults * PAGES, major, None, None, minor, 5000 + 0.9 * time, 90 + 0.02 * time, 300 + io * time))
        )  # fmt: skip
    share = ledger.stalls(3.8).memory
    assert share is not None
    assert (share >= 0.1) is slow


def test_windows_between_bursts_of_reads_wait_for_the_burst_before() -> None:
    """A file read twice at 104 MiB, from a disk of 60 MB/s: 8.9 s instead of 4.6. Every third window has reads."""
    rows: list[tuple[float | None, ...]] = []
    for step in range(1, 89):
        read = 18 * (step // 3)
        rows.append(
            (step / 10, 0.0, read, read, 6, min(read, 103), min(read, 103), 104, max(0, read - 256), 2, None, None, None)
        )  # fmt: skip
    found = ledger_of(rows)
    assert found.memory is not None
    assert found.memory == pytest.approx(0.5, abs=0.06)


def test_a_limit_reached_at_the_first_sample_still_shows_the_runs_own_refaults() -> None:
    """A file read twice by calls at 104 MiB: the first sample finds 105 MiB read."""
    rows: list[tuple[float | None, ...]] = [
        (0.34, 0.02, 105, 96, 12, 103, 101, 104, 0, 4, None, None, None),
        (0.64, 0.04, 225, 216, 12, 103, 102, 104, 0, 4, None, None, None),
        (0.84, 0.07, 353, 336, 12, 103, 103, 104, 96.6, 8, None, None, None),
        (1.03, 0.12, 513, 512, 12, 103, 102, 104, 256.6, 8, None, None, None),
    ]
    found = ledger_of(rows)
    assert found.memory
    assert found.reread_bytes == pytest.approx(256 * MIB, rel=0.01)


def test_program_pages_read_again_at_the_end_of_a_copy_prove_nothing() -> None:
    """A copy of 256 MiB at 104 MiB loses pages read ahead; its program has major faults, which could explain as many bytes."""
    rows: list[tuple[float | None, ...]] = [
        (0.28, 0.0, 118, 0, 4, 104, 103, 104, 29.2, 5, None, None, None),
        (0.58, 0.0, 207, 0, 4, 104, 102, 104, 30.0, 5, None, None, None),
        (0.68, 0.0, 299, 0, 4, 104, 103, 104, 74.0, 5, None, None, None),
        (0.78, 0.0, 349, 256, 4, 103, 101, 104, 92.4, 8, None, None, None),
        (0.82, 0.004, 350, 256, 4, 103, 102, 104, 92.6, 12, None, None, None),
    ]
    assert ledger_of(rows).memory == 0.0


def test_a_file_read_again_by_calls_is_a_shortage() -> None:
    found = run(2400, 2144, chars=2400)
    assert found.memory is not None
    assert found.memory > 0.5


def test_pressure_limits_the_share() -> None:
    """A program that sleeps reads a few pages again in each window."""
    rows: list[tuple[float | None, ...]] = [
        (0.5, 0.0, 98, 0, 300, 103, 98, 104, 0, 0, 0.0, None, 0.0),
        *((1.0 + step, 0.0, 98 + step, 0, 300, 103, 98, 104, step, 20 * step, 0.0, None, 0.01 * step)
          for step in range(10)),
    ]  # fmt: skip
    found = ledger_of(rows)
    assert found.memory is not None
    assert found.memory < 0.02
    assert found.disk == pytest.approx(0.01, abs=0.02)


def test_throttling_is_a_share_of_the_time() -> None:
    rows: list[tuple[float | None, ...]] = [
        (0.0, 0.0, 0, 0, 10, 5, 2, None, 0, 0, 2.0, 0.5, None),
        (10.0, 5.0, 0, 0, 10, 5, 2, None, 0, 0, 6.0, 0.5, None),
    ]
    found = ledger_of(rows)
    assert (found.cpu, found.cores_allowed, found.memory) == (0.4, 0.5, 0.0)
    assert found.largest == 0.4


WRITES = {
    "copy at its limit": ([11, 11], 38, 0.5),
    "its neighbour stalls later": ([11, 11, 0, 0, 0], 38, 0.125),
    "copy without a limit": ([200, 256], None, 0.0),
    "scan that logs": ([1, 0], 38, 0.0),
    "older records": ([None, None], 38, 0.0),
    "a moment of a short copy": ([11, 11], 38, 0.0, 0.5),
}
"""MiB of page cache that wait to be written at samples four seconds apart, the limit in MiB, and the share of the time short of
memory. The pressure of memory is 2 s between two samples, or as stated."""


@pytest.mark.parametrize(
    ("limit", "before", "after", "expected"),
    [
        (40, 100, 110, None),  # a file of 32 MiB, read again and again before the first reading
        (40, 5, 210, None),  # or before the second one
        (40, 100, 900, 0.0),  # a scan, of which most was judged
        (40, 2, 5, 0.0),  # little was read
        (None, 100, 110, 0.0),  # without a limit
    ],
)
def test_the_start_of_a_run_in_a_shared_cgroup_is_not_judged(
    limit: float | None, before: float, after: float, expected: float | None
) -> None:
    """Refaults of a cgroup that others share are read once a second: what came before cannot be judged."""
    shared = {key: value for key, value in INFO.items() if key != "own_cgroup"}
    rows: list[tuple[float | None, ...]] = [
        (at, 0.1, read, 1, 300, 39, 30, limit, 50, 10, None, None, None)
        for at, read in ((0.5, before), (1.5, after if after < 500 else 120), (2.0, after))
    ]
    assert ledger_of(rows, shared).memory == expected


@pytest.mark.parametrize(
    ("unwritten", "limit", "share", "step"), [(*row, 2.0)[:4] for row in WRITES.values()], ids=WRITES
)
@pytest.mark.parametrize("whose", ["cgroup", "system"])
def test_a_copy_waits_for_its_pages_to_be_written(
    unwritten: list[float | None], limit: float | None, share: float, step: float, whose: str
) -> None:
    """The kernel cannot reclaim them before. The copy reads nothing again. The machine's pressure is only an upper bound."""
    columns = [
        *COLUMNS[:-1], column("memwatch.cgroup.memory.unwritten"),
        column(f"memwatch.{whose}.pressure.time", memwatch__pressure__resource="memory", memwatch__pressure__stall_type="some"),
    ]  # fmt: skip
    ledger = StallLedger(columns, on(1))
    make = sample_maker(columns)
    for at, waiting in enumerate(unwritten):
        ledger.add(
            make((100.0 + 4 * at, 0.1 * at, 38.0 * MIB * at, 38.0 * MIB * at, 6.0 * MIB, 37.0 * MIB, 30.0 * MIB,
                  limit and limit * MIB, 0, 0, 0.0, None, None if waiting is None else waiting * MIB, 7.0 + step * at))
        )  # fmt: skip
    found = ledger.stalls(4 * (len(unwritten) - 1.0))
    assert (found.memory, found.writes) == (
        (share, None) if whose == "cgroup" or not share else (None, share)
    )


@pytest.mark.parametrize(("others", "share"), [(0.0, 0.0), (63.0, 0.9)])
def test_the_machines_pressure_counts_one_of_many_busy_processors_little(others: float, share: float) -> None:
    """A file is read again and again. On one of 64 busy processors, the machine's pressure is 1 % of the time."""
    columns = [
        *COLUMNS[:-1],
        column("memwatch.tree.cpu.delay"),
        column("memwatch.system.cpu.busy"),
        *(column("memwatch.system.pressure.time", memwatch__pressure__resource=resource, memwatch__pressure__stall_type="some")
          for resource in ("memory", "io")),
    ]  # fmt: skip
    ledger, make = StallLedger(columns, on(64)), sample_maker(columns)
    for step in range(60):
        read = 98 + 40 * step
        ledger.add(
            make((100.2 + step / 10, 0.0, read * MIB, 0.0, 300.0 * MIB, 103.0 * MIB, 98.0 * MIB, 104.0 * MIB,
                  40 * step * PAGES, 6 * step, None, None, 0.0, (1 + others) * step / 10, step / 640, step / 640))
        )  # fmt: skip
    assert ledger.stalls(6.1).memory == pytest.approx(share, abs=0.1)


CONTENTION = {
    "one thread beside busy neighbours": (5.0, 5.0, 15.0, 0.5),
    "alone with more threads than processors": (60.0, 40.0, 0.0, 0.0),
    "more threads than processors beside one neighbour": (60.0, 30.0, 10.0, 0.25),
    "asleep beside busy neighbours": (0.0, 0.0, 40.0, 0.0),
    "a little while other programs use much": (0.5, 1.0, 35.0, 0.05),
}
"""Seconds of waiting for a processor, of the run's CPU time, and of other programs', in 10 s on 4 processors; then the share."""


@pytest.mark.parametrize(("delay", "used", "others", "share"), CONTENTION.values(), ids=CONTENTION)
def test_contention_is_time_that_other_programs_took(
    delay: float, used: float, others: float, share: float
) -> None:
    columns = [
        COLUMNS[0],
        column("memwatch.tree.cpu.delay"),
        column("memwatch.system.cpu.busy"),
        column("memwatch.cgroup.cpu.throttled"),
    ]
    for throttled in (0.0, 1.0):
        ledger, make = StallLedger(columns, RunConditions.of(INFO)), sample_maker(columns)
        for step in range(11):
            part = step / 10
            ledger.add(
                make(
                    (100.0 + step, used * part, delay * part, 700 + (used + others) * part, throttled * part)
                )
            )
        found = ledger.stalls(10.0)
        assert found.contention == pytest.approx(0.0 if throttled else share, abs=1e-3)
        assert (found.largest or 0) < 0.2  # contention is no property of the run


def test_unknown_is_not_zero() -> None:
    ledger = StallLedger([], RunConditions.of(INFO))
    assert ledger.stalls(5.0) == Stalls()
    assert Stalls().largest is None


def test_the_ledger_is_written_and_read_again() -> None:
    found = run(2400, 2144)
    assert Stalls.of(found.to_json()) == found
    assert Stalls.of({"memory": "much", "reread_bytes": None}) == Stalls()


def waited_in_parts(
    rows: list[tuple[float, float, float, float]], every: int, faults: float = 0.0
) -> list[float]:
    """Seconds waited between every so many rows: time, MiB read, passed to calls and refaulted; full from the second on.

    `faults`: major faults of each row.
    """
    ledger = StallLedger(COLUMNS, RunConditions.of(INFO))
    make = sample_maker(COLUMNS)
    marks = []
    for at, (time, read, chars, refaults) in enumerate(rows):
        usage = 103.0 * MIB if marks else 80.0 * MIB
        ledger.add(
            make((100.0 + time, 0.0, read * MIB, chars * MIB, 300.0 * MIB, usage, 98.0 * MIB, 104.0 * MIB, refaults * PAGES,
                  faults * at, None, None, None))
        )  # fmt: skip
        marks.append(ledger.mark())
    return [
        ledger.waited(first, last) for first, last in zip(marks[::every], marks[every::every], strict=False)
    ]


def test_a_long_scan_does_not_hide_the_shortage_after_it() -> None:
    """10 GB read once, then 10 s in which everything is read again: a tenth of all reads."""
    scan = [(step / 10, 98 + 10.0 * step, 98 + 10.0 * step, 0.0) for step in range(1, 1001)]
    again = [(100 + step / 10, 10_098 + 10.0 * step, 10_098 + 10.0 * step, 10.0 * step) for step in range(1, 101)]  # fmt: skip
    parts = waited_in_parts([(0.0, 98.0, 98.0, 0.0), *scan, *again], 50)
    assert parts[:20] == [0.0] * 20
    assert parts[20:] == pytest.approx([5.0, 5.0], rel=0.05)


@pytest.mark.parametrize(("faults", "parts"), [(1.5, [1.7, 4.4, 4.4, 4.4]), (0.0, [0.0] * 4)])
def test_major_faults_show_a_shortage_if_the_kernel_forgets_its_refaults(
    faults: float, parts: list[float]
) -> None:
    """9 MiB are read in each tenth of a second, 2 of them refaults. After 300 MiB of address space, all were read before."""
    rows = [(step / 10, 9.0 * step, 0.0, 2.0 * step) for step in range(201)]
    assert waited_in_parts(rows, 50, faults) == pytest.approx(parts, abs=0.1)


@pytest.mark.parametrize("copies", [1, 5])
@pytest.mark.parametrize("every", [1, 5, 25])
def test_copies_with_one_call_each_are_no_stall(copies: int, every: int) -> None:
    """Each copies 1 GB in 10 s and reads half of it twice. The call is counted at its end."""
    rows = [(0.0, 98.0, 98.0, 0.0)]
    for copy in range(copies):
        rows += [
            (copy * 10 + step / 10, 98 + 1500.0 * copy + 15 * step, 98 + 1000.0 * (copy + (step == 100)), 500.0 * copy + 5 * step)
            for step in range(1, 101)
        ]  # fmt: skip
    assert sum(waited_in_parts(rows, every)) == 0


def test_a_run_waits_for_memory_or_for_a_processor() -> None:
    """A program reads a file again and again, and gets 1 s of 6 s of processor time that it could use."""
    columns = [*COLUMNS, column("memwatch.tree.cpu.delay"), column("memwatch.system.cpu.busy")]
    ledger, make = StallLedger(columns, RunConditions.of(INFO)), sample_maker(columns)
    for step in range(61):
        time, read = step / 10, 98 + 40.0 * step
        ledger.add(
            make((100 + time, 0.0, read * MIB, 0, 300 * MIB, 103 * MIB, 98 * MIB, 104 * MIB, 40 * step * PAGES, 9 * step,
                  None, None, None, 5 * time / 6, 4 * time))
        )  # fmt: skip
    found = ledger.stalls(6.0)
    assert found.contention == pytest.approx(5 / 6, abs=0.01)
    assert found.memory == pytest.approx(1 / 6, abs=0.01)


@pytest.mark.parametrize(
    ("delay", "used", "clock", "share"),
    [
        (0.0, 0.2, 1.0, 0.8),
        (0.6, 0.2, 0.4, 0.5),  # it computes as long as it waits for memory
        (0.6, 0.0, 0.4, 1.0),
        (0.9, 0.1, 0.1, 0.0),
    ],
)
def test_the_clock_of_a_shortage_stops_while_a_run_waits_for_a_processor(
    delay: float, used: float, clock: float, share: float
) -> None:
    """A program reads a file again and again beside busy neighbours. `delay`, `used`: in each second."""
    columns = [*COLUMNS, column("memwatch.tree.cpu.delay"), column("memwatch.system.cpu.busy")]
    ledger, make = StallLedger(columns, RunConditions.of(INFO)), sample_maker(columns)
    marks = []
    for step in range(101):
        time, read, slow = step / 10, 98 + 40.0 * step, step % 10 == 0
        ledger.add(
            make((100 + time, used * time, read * MIB, 0, 300 * MIB, 103 * MIB, 98 * MIB, 104 * MIB, 40 * step * PAGES, 9 * step,
                  None, None, None, delay * time if slow else None, (used + 3) * time if slow else None))
        )  # fmt: skip
        marks.append(ledger.mark())
    first, last = marks[10], marks[100]
    assert last.time - first.time == pytest.approx(9 * clock, abs=0.01)
    assert ledger.waited(first, last) == pytest.approx(share * 9 * clock, abs=0.05)
    assert len({mark.time for mark in marks}) == 11

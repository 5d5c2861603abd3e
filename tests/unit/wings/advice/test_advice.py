"""Advice from the rows of runs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from otel_memwatch.wings.advice.advice import KERNEL_SHARE, advise, job_of
from otel_memwatch.wings.advice.history import what_changed
from otel_memwatch.wings.advice.recommendation import sentence, tight, to_json
from otel_memwatch.wings.advice.targets import TARGETS
from otel_memwatch.wings.index.indexed_run import IndexedRun

MIB = 1 << 20


def row(needed: float | None = 100, **more: Any) -> IndexedRun:
    """A run that needed so many MiB, exactly."""
    size = None if needed is None else round(needed * MIB)
    fields: dict[str, Any] = {
        "path": "runs/a", "id": "a", "state": "finished", "key": "train.py", "system": "Linux 6.18 x86_64", "exit_code": 0,
        "seconds": 90.0, "cpu": 135.0, "memory": size, "low": size, "high": size, "certainty": "exact",
    }  # fmt: skip
    return IndexedRun(**(fields | more))


def test_memory_is_never_less_than_a_run_has_needed_and_little_more() -> None:
    (advice,) = advise([row(100 + n / 10) for n in range(10)], by=job_of)
    assert advice.memory is not None
    assert 100.9 * MIB < advice.memory < 110 * MIB
    assert (advice.runs, advice.odds, advice.guess) == (10, 1e-3, False)
    assert advice.cores == 1.5
    assert advice.seconds is not None
    assert 90 < advice.seconds < 150


def test_a_recording_of_a_running_service_gives_no_time_limit() -> None:
    (advice,) = advise([row(100, mode="attach")], by=job_of)
    assert advice.seconds is None
    assert sentence(advice).endswith("2 processors")
    for name in ("slurm", "snakemake", "nextflow"):
        assert "time" not in TARGETS[name](advice), name


def test_a_brief_run_does_not_need_two_processors() -> None:
    """The CPU time of `true` includes that of its start, before its duration begins."""
    assert row(seconds=0.0007, cpu=0.0013).cores == 1.0
    assert row(seconds=0.02, cpu=0.04).cores == 2.0


def test_a_run_that_the_guard_ended_is_a_lower_bound() -> None:
    """--timeout ended it with exit code 0 before its largest step."""
    (advice,) = advise(
        [row(40, verdict="timeout"), *(row(100, verdict="finished") for _ in range(9))], by=job_of
    )
    assert (advice.runs, advice.median) == (9, 100 * MIB)
    (alone,) = advise([row(40, verdict="timeout")], by=job_of)
    assert alone.memory is None
    assert "lower bound" in alone.notes[0]


def test_memory_in_swap_is_requested() -> None:
    """A job of 150 MiB under a limit of 60: without swap, the kernel would kill it in what a run needed beside its swap."""
    (advice,) = advise([row(50, swap=100 * MIB), row(50)], by=job_of)
    assert advice.memory is not None
    assert advice.memory >= 150 * MIB
    assert "100.0 MiB of it were in swap at a sample" in advice.notes


def test_one_run_has_a_stated_margin() -> None:
    (advice,) = advise([row(100)], by=job_of)
    assert advice.memory == pytest.approx(110 * MIB + KERNEL_SHARE, abs=1)
    assert "based on one run: 10 % headroom" in advice.notes[0]
    assert "from one run" in sentence(advice)


@pytest.mark.parametrize(
    ("low", "high", "basis"),
    [
        (9, 1730, "from one run of 0.01-1.69 GiB"),
        (249, 253, "from one run"),
        (0, 2, "from one run"),
        (2, 4, "from one run"),
    ],
)
def test_one_run_with_a_wide_range_says_so(low: int | None, high: int, basis: str) -> None:
    """A search through text files was advised to request 1903 MiB, without a reason."""
    bound = low and low * MIB
    (advice,) = advise([row(high, low=bound, certainty="interval")], by=job_of)
    assert f"({basis})" in sentence(advice)
    assert any("upper end counts" in note for note in advice.notes) == (basis != "from one run")


def test_runs_that_have_little_in_common_are_not_advised_in_a_line() -> None:
    """Two runs of 15 and of 350 MiB promise nothing; 52 GiB were said to be needed."""
    (advice,) = advise([row(15), row(350)], by=job_of)
    assert (
        sentence(advice)
        == "no figure to request: 2 runs of up to 350.0 MiB differ too much (wrap --name tells jobs apart)"
    )


def test_what_is_added_for_others_or_was_needed_by_a_failed_run_is_no_difference() -> None:
    """One run of 300 KiB was said to differ too much, from nothing: its advice has a MiB for the kernel."""
    (tiny,) = advise([row(0.3)], by=job_of)
    assert sentence(tiny).startswith("request 32 MiB (from one run)")
    (watched,) = advise([row(5)], by=job_of, monitor_share=25 * MIB)
    assert sentence(watched).startswith("request 32 MiB (from one run)")
    (failed,) = advise([row(100), row(100), row(500, exit_code=1)], by=job_of)
    assert sentence(failed).startswith(
        "request at least 551 MiB (2 runs; one that failed or was killed needed more)"
    )
    killed = row(500, exit_code=None, signal=9, oom_kills=1, limit=500 * MIB)
    (guess,) = advise([row(100), row(100), killed], by=job_of)
    assert sentence(guess).startswith("request 751 MiB (a guess: a run was killed at 500.0 MiB)")


@pytest.mark.parametrize("target", ["slurm", "kubernetes", "docker", "snakemake", "nextflow"])
def test_a_target_that_is_given_a_figure_is_not_reported_that_there_is_none(target: str) -> None:
    (advice,) = advise([row(15), row(350)], by=job_of)
    said = [line for line in TARGETS[target](advice).splitlines() if line.startswith(("# ", "// "))]
    assert "request " in said[0]
    assert any("2 runs of up to 350.0 MiB differ too much" in line for line in said)


def test_a_run_that_was_killed_for_memory_makes_it_a_guess() -> None:
    killed = row(200, exit_code=None, signal=9, oom_kills=1, limit=200 * MIB)
    (advice,) = advise([row(100), row(100), killed], by=job_of)
    assert advice.memory == 300 * MIB + KERNEL_SHARE
    assert advice.guess
    (alone,) = advise([killed], by=job_of)
    assert (alone.memory, alone.guess) == (300 * MIB, True)
    (enough,) = advise([row(300), row(300), killed], by=job_of)
    assert not enough.guess


def test_without_a_run_that_ended_well_there_is_a_lower_bound_only() -> None:
    (advice,) = advise([row(70, exit_code=1), row(90, state="running", high=None, exit_code=None)], by=job_of)
    assert (advice.memory, advice.at_least) == (None, 90 * MIB)
    assert "needs at least 90.0 MiB" in sentence(advice)
    (nothing,) = advise([row(None)], by=job_of)
    assert sentence(nothing) == "nothing is known"


def test_a_failed_run_that_needed_more_counts() -> None:
    (advice,) = advise([row(100), row(100), row(100), row(250, exit_code=1)], by=job_of)
    assert advice.memory is not None
    assert advice.memory >= 250 * MIB


def test_other_kernels_and_other_jobs_are_apart() -> None:
    rows = [
        row(100),
        row(100, system="Linux 5.10 x86_64"),
        row(50, name="other"),
        row(60, tags_json='{"rule": "align"}'),
    ]
    found = {(one.job, one.system.split()[1]) for one in advise(rows, by=job_of)}
    assert found == {("train.py", "6.18"), ("train.py", "5.10"), ("other", "6.18"), ("align", "6.18")}


def test_what_others_have_polled_counts_only_alone() -> None:
    polled = row(100, by="sacct", certainty="sampled")
    (advice,) = advise([polled, polled, row(300)], by=job_of)
    assert advice.runs == 1
    (guess,) = advise([polled, polled], by=job_of)
    assert guess.guess
    assert guess.memory is not None
    assert guess.memory > 125 * MIB
    assert any("sacct polled" in note for note in guess.notes)


def test_the_monitor_and_the_page_cache_are_named() -> None:
    (advice,) = advise([row(100, cgroup=180 * MIB, own_cgroup=1)], by=job_of, monitor_share=25 * MIB)
    assert advice.memory == pytest.approx(135 * MIB + KERNEL_SHARE, abs=1)
    assert any(note.startswith("80.0 MiB of reclaimable page cache") for note in advice.notes)
    assert any("25 MiB of it are for the monitor" in note for note in advice.notes)


def test_page_cache_of_a_control_group_that_others_share_is_not_named() -> None:
    """The surrounding group's 9 GiB of page cache were reported for `sort` without a separate group."""
    (advice,) = advise([row(100, cgroup=9 << 30)], by=job_of)
    assert not any("page cache" in note for note in advice.notes)


def test_program_files_are_added_to_the_request() -> None:
    """PyTorch, Java and Chromium hang below their needed memory: each page of code is read again from disk."""
    torch = row(527, file_bytes=344 * MIB, charged=1)
    (advice,) = advise([torch], by=job_of)
    assert advice.memory == pytest.approx(924 * MIB, abs=MIB)
    assert sentence(advice).startswith("request 924 MiB: minimum 580 MiB + 344 MiB of files (from one run)")
    document: Any = to_json(advice)
    assert document["memory"]["target"] == advice.memory
    assert document["memory"]["files"] == 344 * MIB
    assert document["memory"]["needed"] == (advice.memory or 0) - 344 * MIB
    several = [row(527, file_bytes=(300 + n) * MIB, charged=1) for n in range(4)]
    (more,) = advise(several, by=job_of)
    assert more.files == 303 * MIB
    (little,) = advise([row(527, file_bytes=2 * MIB, charged=1)], by=job_of)
    assert sentence(little).startswith("request 582 MiB (from one run)")


@pytest.mark.parametrize("tenths", range(10))
def test_a_request_and_its_sizes_name_the_same_minimum(tenths: int) -> None:
    """A request of 120 MiB had "114 MiB needed", and the sizes a minimum of 115."""
    (advice,) = advise([row(527, file_bytes=300 * MIB + tenths * MIB // 10, charged=1)], by=job_of)
    document: Any = to_json(advice)
    minimum = math.ceil(document["memory"]["needed"] / MIB)
    assert f": minimum {minimum} MiB + " in sentence(advice)


def test_advice_has_two_sizes_and_tight_requests_the_smaller_one() -> None:
    (advice,) = advise([row(527, file_bytes=344 * MIB, charged=1)], by=job_of)
    assert advice.minimum is not None
    assert advice.memory is not None
    assert advice.full_speed == advice.memory == advice.minimum + 344 * MIB
    assert "sizes        minimum 580 MiB (with less it may be killed), full speed 924 MiB" in TARGETS["text"](
        advice
    )
    document: Any = to_json(advice)
    assert document["memory"]["minimum"] == advice.minimum
    assert document["memory"]["full_speed"] == advice.full_speed
    small = tight(advice)
    assert sentence(small).startswith("request 580 MiB (from one run)")
    assert "full speed" not in " ".join(small.notes)  # it is no part of the request
    assert small.notes[-1].startswith("the job may read files from disk again")
    assert "--mem=580M" in TARGETS["slurm"](small)
    assert "--memory=580m" in TARGETS["docker"](small)
    # The node's spare memory may hold the files: a pod's limit stays at full speed.
    assert "    memory: 580Mi\n    cpu: 1500m\n  limits:\n    memory: 924Mi" in TARGETS["kubernetes"](small)
    assert to_json(small)["memory"]["target"] == advice.minimum  # type: ignore[index]


def test_tight_lowers_the_line_over_an_input_too() -> None:
    rows = [row(20 + 2 * n, input_bytes=n * 10**6, file_bytes=100 * MIB) for n in range(10, 40)]
    (advice,) = advise(rows, by=job_of)
    small = tight(advice)
    assert small.line is not None
    assert small.line.at(small.line.largest) == pytest.approx(small.memory, abs=1)


def test_a_wide_range_is_no_more_than_the_cgroup_ever_charged() -> None:
    """A program of 6 MiB that maps 256 MiB: 283 MiB needed and 263 MiB of files were advised, one file twice."""
    mapped = row(6, low=6 * MIB, high=257 * MIB, certainty="interval", file_bytes=263 * MIB, own_cgroup=1, cgroup=262 * MIB,
                 charged=1)  # fmt: skip
    (advice,) = advise([mapped], by=job_of)
    # 7 MiB of the 263 are not charged to the run.
    assert advice.full_speed == pytest.approx((1.1 * 6 + 1.05 * 263) * MIB, abs=MIB)
    (warm,) = advise([mapped._replace(high=6 * MIB, cgroup=10 * MIB)], by=job_of)  # in memory before the run
    assert warm.full_speed == pytest.approx((1.1 * 6 + 263) * MIB, abs=MIB)
    assert any("259.0 MiB of its files were in memory before a run" in note for note in warm.notes)


FILES = row(6, file_bytes=100 * MIB, own_cgroup=1, cgroup=160 * MIB, charged=1, files_beside_peak=100 * MIB)
ESTIMATES = {
    "a cgroup": ([FILES], "107 MiB: runs without a limit do not show which pages are needed again; the run held 160 MiB with"),
    "one run": ([FILES], "; three runs are safer, and --trade measures it"),
    "nothing read ahead": ([FILES._replace(cgroup=106 * MIB)], "the run held 106 MiB"),
    "no cgroup": ([FILES._replace(own_cgroup=0, cgroup=None)], "107 MiB: only a dedicated cgroup"),
    "at a limit": (
        [FILES._replace(limit=80 * MIB, cgroup=80 * MIB, file_bytes=70 * MIB, starved=0.5)], "MiB: runs at a memory limit"),
    "one run at a limit": (
        [FILES, FILES._replace(limit=80 * MIB, cgroup=80 * MIB, file_bytes=70 * MIB, starved=0.5)], "107 MiB: runs without"),
    "two runs": ([FILES, FILES._replace(cgroup=170 * MIB)], "a run held 170 MiB with all pages that were read ahead; --trade"),
    "a wide range": (
        [FILES._replace(memory=90 * MIB, low=90 * MIB, high=157 * MIB, files_beside_peak=60 * MIB, certainty="interval")],
        "MiB: runs without a limit"),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "said"), ESTIMATES.values(), ids=ESTIMATES)
def test_full_speed_is_an_estimate_and_has_no_bound(rows: list[IndexedRun], said: str) -> None:
    """The high-water mark of Chromium's cgroup was 477 MiB in one run, and its knee 494."""
    (advice,) = advise(rows, by=job_of)
    (note,) = (note for note in advice.notes if note.startswith("full speed is"))
    assert said in note
    assert "between" not in note
    assert "at most" not in note


def test_without_a_cgroup_the_advice_says_that_it_does_not_show_page_cache() -> None:
    """SQLite reads its file of 50 MiB again and again: 32 MiB were advised, and 67 are needed."""
    reads = row(3, read=50 * MIB, read_chars=800 * MIB, write_chars=0, file_bytes=2 * MIB, own_cgroup=0)
    (advice,) = advise([reads], by=job_of)
    assert any("only a dedicated cgroup shows: the job read 798.0 MiB" in note for note in advice.notes)
    assert sentence(advice).startswith("request 32 MiB (from one run; full speed may need more)")
    (piped,) = advise([reads._replace(read=0, write_chars=800 * MIB)], by=job_of)
    assert not any("dedicated cgroup shows" in note for note in piped.notes)


def test_the_error_of_many_processors_lowers_no_request() -> None:
    """On 64 processors the cgroup's high-water mark may be 16 MiB too low: 44.7 MiB for a job of 60.7."""
    inexact = row(44.7, high=round(61.7 * MIB), certainty="interval", own_cgroup=1, cgroup=round(44.7 * MIB),
                  charged=1)  # fmt: skip
    (advice,) = advise([inexact], by=job_of)
    assert advice.minimum == pytest.approx(1.1 * 61.7 * MIB, rel=0.02)


def at_limit(limit: float, **more: Any) -> IndexedRun:
    """A run of 6 MiB whose page cache filled its limit: its bounds are 6 MiB and the limit."""
    fields = {"low": 6 * MIB, "high": round(limit * MIB), "certainty": "interval", "own_cgroup": 1, "limit": round(limit * MIB),
              "cgroup": round(limit * MIB), "charged": 1, "file_bytes": 98 * MIB}  # fmt: skip
    return row(6, **(fields | more))


@pytest.mark.parametrize(("processes", "more"), [(5, 42.75), (12, 85.5)])
def test_several_processes_may_map_different_parts_of_a_file(processes: int, more: float) -> None:
    """Chromium needed 200 MiB and 170 of files in one process; it hung at 391 MiB, and ran at 450 to 494 at its usual speed."""
    browser = row(209, file_bytes=171 * MIB, charged=1, processes=processes)
    (advice,) = advise([browser], by=job_of)
    (alone,) = advise([browser._replace(processes=1)], by=job_of)
    assert advice.full_speed is not None
    assert alone.full_speed is not None
    assert advice.full_speed - alone.full_speed == pytest.approx(more * MIB, abs=2)
    assert advice.minimum == alone.minimum


PAGED = {
    "ffmpeg": (22, {"cgroup": 227, "file_bytes": 41, "read": 205}, 90, 227),
    "rustc": (36, {"cgroup": 423, "file_bytes": 94, "read": 382}, 300, 418),
    "its files in memory before": (22, {"cgroup": 30, "file_bytes": 41, "read": 0}, 0, 65),
    "reads of io_uring": (22, {"cgroup": 9000, "file_bytes": 5, "read": 9000}, 3, 46),
}
"""Needed memory and other figures in MiB, major faults, and the size for full speed without headroom of the needed memory."""


@pytest.mark.parametrize(("needed", "figures", "faults", "size"), PAGED.values(), ids=PAGED)
def test_pages_that_faults_read_ahead_count_for_full_speed(
    needed: int, figures: dict[str, int], faults: int, size: int
) -> None:
    """With a readahead of 8 MiB, ffmpeg has 62 % of its speed at 94 MiB, and full speed at 186; rustc needs 410."""
    sizes = {name: value * MIB for name, value in figures.items()}
    run = row(needed, own_cgroup=1, charged=1, read_chars=0, major_faults=faults, **sizes)
    (advice,) = advise([run], by=job_of)
    assert advice.full_speed is not None
    assert advice.full_speed / MIB == pytest.approx(size + 0.1 * needed, abs=2)


@pytest.mark.parametrize(("read", "cgroup", "known"), [(0, 4, False), (65, 70, True)])
def test_files_that_were_in_memory_before_the_run_are_said_to_be_unknown(
    read: int, cgroup: int, *, known: bool
) -> None:
    """SQLite passes 805 MiB to read calls; from a cold page cache it reads 65 of them and needs these."""
    sizes = {"cgroup": cgroup * MIB, "read": read * MIB, "read_chars": 805 * MIB, "write_chars": 0}
    (advice,) = advise([row(3, own_cgroup=1, charged=1, **sizes)], by=job_of)
    assert any("that calls read from files in memory" in note for note in advice.notes) is not known


def test_page_cache_of_a_copy_is_not_requested() -> None:
    """A copy of 256 MiB was advised 560 MiB; it runs as quickly in 18."""
    copy = row(8, low=8 * MIB, high=507 * MIB, certainty="interval", charged=1, own_cgroup=1,
               cgroup=521 * MIB, file_bytes=2 * MIB, read=257 * MIB, read_chars=256 * MIB, write_chars=256 * MIB)  # fmt: skip
    (wide,) = advise([copy], by=job_of)
    assert wide.memory is not None
    assert wide.memory > 500 * MIB
    (advice,) = advise([copy._replace(processes_high=9 * MIB)], by=job_of)
    assert advice.memory == advice.minimum == 32 * MIB
    assert advice.largest == 9 * MIB
    # The bound by the processes has their file pages; the bound by the cgroup may be lower.
    (lower,) = advise([copy._replace(high=12 * MIB, processes_high=400 * MIB)], by=job_of)
    assert lower.memory == 32 * MIB


@pytest.mark.parametrize(
    ("written", "seconds", "unwritten", "size"),
    [
        (256, 2, 100, 8.8 + 256 * 1.05),  # samples miss the most
        (256, 2, None, 32),  # not recorded
        (9000, 600, 100, 8.8 + 100 * 1.05),  # the disk keeps up
    ],
)
def test_data_that_waits_to_be_written_counts_for_full_speed(
    written: int, seconds: float, unwritten: int | None, size: float
) -> None:
    """A copy of 256 MiB was advised 32 MiB, in which it has less than half of its speed."""
    copy = row(8, low=8 * MIB, high=507 * MIB, certainty="interval", charged=1, own_cgroup=1,
               cgroup=521 * MIB, file_bytes=0, read=256 * MIB, read_chars=256 * MIB, write_chars=256 * MIB,
               processes_high=8 * MIB, written=written * MIB, seconds=seconds,
               unwritten=None if unwritten is None else unwritten * MIB)  # fmt: skip
    (advice,) = advise([copy], by=job_of)
    assert advice.full_speed is not None
    assert advice.full_speed / MIB == pytest.approx(size, rel=0.06)
    assert advice.minimum == 32 * MIB
    assert ("waits to be written" in " ".join(advice.notes)) is (unwritten is not None)


@pytest.mark.parametrize(
    ("beside", "full"),
    [
        (None, 142 * 1.1 + 91 * 1.05),  # an older record: all that was charged counts
        (300, 142 * 1.1 + 91 * 1.05),
        (70, 142 * 1.1 + 70 * 1.05),
        (0, 194 * 1.1),  # a wide range raises the minimum only
    ],
)
def test_files_count_beside_the_peak(beside: int | None, full: float) -> None:
    """DuckDB needed 142 MiB for a sort. It wrote and read 105 MiB, some of them at another time than the peak."""
    sort = row(142, low=142 * MIB, high=194 * MIB, certainty="interval", charged=1, own_cgroup=1,
               cgroup=233 * MIB, file_bytes=46 * MIB, read=14 * MIB, read_chars=122 * MIB, write_chars=119 * MIB,
               written=105 * MIB, seconds=3.8, unwritten=82 * MIB, files_beside_peak=None if beside is None else beside * MIB)  # fmt: skip
    (advice,) = advise([sort], by=job_of)
    assert advice.full_speed is not None
    assert advice.minimum is not None
    assert advice.minimum / MIB == pytest.approx(194 * 1.1, abs=1)
    assert advice.full_speed / MIB == pytest.approx(full, abs=1)


def test_a_file_that_was_mapped_between_two_samples_counts_for_full_speed() -> None:
    """Beside busy programs, no sample saw a run of 2 s that mapped 256 MiB; it was advised 32 MiB."""
    run = row(5, low=5 * MIB, high=264 * MIB, certainty="interval", charged=1, own_cgroup=1,
              cgroup=262 * MIB, file_bytes=5 * MIB, read=256 * MIB, read_chars=0, major_faults=3,
              processes_high=6 * MIB, process_low=265 * MIB)  # fmt: skip
    (advice,) = advise([run], by=job_of)
    assert advice.full_speed is not None
    assert advice.full_speed / MIB == pytest.approx(270, abs=10)


def test_files_in_memory_that_no_bound_includes_are_noted() -> None:
    unbounded = row(40, high=101 * MIB, certainty="interval", excluded=100 * MIB)
    (advice,) = advise([row(90), unbounded], by=job_of)
    assert "at most 100.0 MiB in files in memory" in " ".join(advice.notes)
    (known,) = advise([row(90)], by=job_of)
    assert "in memory" not in " ".join(known.notes)


def test_the_estimate_of_one_unbounded_run_among_many_counts() -> None:
    """Its lower bound is below what the others needed, and its best estimate above."""
    unbounded = row(500, low=10 * MIB, high=None, certainty="interval")
    (advice,) = advise([unbounded, *(row(100) for _ in range(9))], by=job_of)
    assert advice.memory == pytest.approx(625 * MIB + KERNEL_SHARE, abs=1)
    assert (advice.odds, advice.at_least) == (None, 100 * MIB)


def test_a_starved_run_is_no_base_for_its_limit_and_ten_percent() -> None:
    """Below 104 MiB a program of 256 MiB of files did a thousandth of its work; 107 MiB were advised after that."""
    starved = at_limit(104, starved=0.8, short=158 * MIB)
    (alone,) = advise([starved], by=job_of)
    assert alone.guess
    assert alone.memory == pytest.approx(1.1 * 262 * MIB, abs=MIB)
    assert alone.minimum == 104 * MIB
    assert "a guess: at its limit of 104.0 MiB, it was short of memory 80 % of the time" in sentence(alone)
    assert any("runs at a memory limit show only a part" in note for note in alone.notes)
    (unknown,) = advise([starved._replace(short=None)], by=job_of)
    assert unknown.memory == 202 * MIB
    (with_another,) = advise(
        [starved, row(6, own_cgroup=1, cgroup=262 * MIB, file_bytes=256 * MIB)], by=job_of
    )
    assert with_another.memory == pytest.approx((6.6 + 256) * MIB + KERNEL_SHARE, rel=0.01)
    assert any("runs without a limit do not show which" in note for note in with_another.notes)
    assert any("1 run at a memory limit gives only a lower bound" in note for note in with_another.notes)


def test_a_limit_that_sufficed_is_advised_as_it_is() -> None:
    (enough,) = advise([at_limit(104, starved=0.0)], by=job_of)
    assert enough.memory == 104 * MIB
    assert any("the job ran in it without reading files again" in note for note in enough.notes)
    (old,) = advise([at_limit(104)], by=job_of)  # of a version without the ledger
    assert old.minimum == 104 * MIB
    assert old.memory == 202 * MIB
    assert any("perhaps slower than without it" in note for note in old.notes)


def test_a_starved_run_is_not_compared_with_others() -> None:
    slow = row(60, path="b", started=20.0, starved=0.8)
    assert what_changed(slow, [row(100)]) is None
    assert what_changed(row(60, started=20.0), [slow]) is None


def test_page_cache_that_read_calls_use_again_is_added_to_the_request() -> None:
    """A database of 100 MiB, read at random by a process of 3 MiB, hung in 33 MiB."""
    database = row(
        3,
        own_cgroup=1,
        cgroup=106 * MIB,
        file_bytes=3 * MIB,
        read=101 * MIB,
        read_chars=4000 * MIB,
        write_chars=10,
    )
    (advice,) = advise([database], by=job_of)
    assert advice.memory == pytest.approx(106 * MIB, rel=0.02)
    copy = database._replace(read_chars=101 * MIB, write_chars=100 * MIB)
    pipe = database._replace(read_chars=1100 * MIB, write_chars=1000 * MIB)
    for once in (copy, pipe, database._replace(read_chars=None), database._replace(own_cgroup=0)):
        (small,) = advise([once], by=job_of)
        assert small.memory == 32 * MIB


def test_an_older_run_shows_its_program_files_by_the_size_of_its_largest_process() -> None:
    (advice,) = advise([row(60, process=79 * MIB, process_low=79 * MIB)] * 3, by=job_of)
    assert advice.files == 19 * MIB
    (short,) = advise([row(60, process=80 * MIB)] * 3, by=job_of)  # no larger than its launcher was
    assert not short.files


def test_program_files_move_the_line_over_an_input_too() -> None:
    rows = [row(20 + 2 * n, input_bytes=n * 10**6, file_bytes=100 * MIB) for n in range(10, 40)]
    (advice,) = advise(rows, by=job_of)
    assert advice.line is not None
    assert advice.line.at(advice.line.largest) == pytest.approx(advice.memory, abs=1)
    assert advice.line.at(0) > 100 * MIB


def unbounded(low: float, **more: Any) -> IndexedRun:
    """A run that needed at least so many MiB."""
    return row(low, high=None, certainty="interval", how="at one tick, page faults", **more)


@pytest.mark.parametrize("runs", [1, 3])
def test_runs_without_an_upper_bound_promise_nothing(runs: int) -> None:
    """197 MiB were advised of a run of at least 178 MiB, and three such runs had odds; 223 MiB were needed."""
    (advice,) = advise([unbounded(178)] * runs, by=job_of)
    assert advice.memory is not None
    assert advice.memory >= 222 * MIB
    assert (advice.odds, advice.at_least) == (None, 178 * MIB)
    assert sentence(advice).startswith("request at least 224 MiB (")
    assert "no upper bound" in sentence(advice)
    assert "1 in 1000" not in "".join(write(advice) for write in TARGETS.values())
    document: Any = to_json(advice)
    assert (document["memory"]["at_least"], document["odds"]) == (178 * MIB, None)


def test_a_few_runs_without_an_upper_bound_count_by_their_lower_one() -> None:
    (advice,) = advise([row(100 + n / 10) for n in range(12)] + [unbounded(60)], by=job_of)
    assert (advice.odds, advice.at_least) == (1e-3, None)
    (most,) = advise([row(100), row(100), unbounded(60)], by=job_of)
    assert most.odds is None
    assert sentence(most).startswith("request at least 1")
    (above,) = advise([row(100 + n / 10) for n in range(12)] + [unbounded(160)], by=job_of)
    assert (above.odds, above.at_least) == (None, 160 * MIB)
    assert above.memory is not None
    assert above.memory >= 176 * MIB


def test_the_figure_of_a_run_that_was_killed_is_a_lower_bound() -> None:
    killed = row(500, exit_code=None, signal=9, reason="killed by SIGKILL")
    (alone,) = advise([killed], by=job_of)
    assert (alone.memory, alone.at_least) == (None, 500 * MIB)
    (advice,) = advise([row(100), row(100), killed], by=job_of)
    assert (advice.odds, advice.at_least) == (None, 500 * MIB)
    limited = row(500, exit_code=None, signal=9, oom_kills=1, limit=500 * MIB)
    (guess,) = advise([row(100), row(100), limited], by=job_of)
    assert (guess.guess, guess.at_least) == (True, 500 * MIB)


def test_a_run_of_nothing_has_ended_well() -> None:
    """A command that needs less than the kernel counts was said to have failed."""
    (advice,) = advise([row(0, high=MIB, certainty="interval")], by=job_of)
    assert sentence(advice).startswith("request 32 MiB (from one run)")


def test_advice_is_never_above_the_machine() -> None:
    """Other people's forks made an upper bound of 2.1 TiB, and the advice, on a machine of 23.5 GiB."""
    machine = {"host_memory": 24 << 30, "host_swap": 2 << 30}
    wide = row(240, high=200 << 30, certainty="interval", **machine)
    for rows in ([wide], [wide] * 3, [wide, row(240, **machine)]):
        (advice,) = advise(rows, by=job_of)
        assert advice.memory == 26 << 30
        assert advice.odds is None
        assert advice.largest == 26 << 30
        assert any("26.00 GiB" in note for note in advice.notes)
    killed = row(20 << 10, exit_code=None, signal=9, oom_kills=1, limit=20 << 30, **machine)
    (guess,) = advise([killed], by=job_of, monitor_share=25 * MIB)
    assert guess.memory == 26 << 30
    (swapped,) = advise([row(25 << 10, host_memory=24 << 30)], by=job_of)  # swap was not recorded then
    assert swapped.memory == 25 << 30


def test_numbers_of_jobs_and_tasks_do_not_explain_memory() -> None:
    """An array of growing tasks was advised "2.1e+07 bytes for each of tag.slurm.task"."""
    rows = [row(100 + 20 * n, tags_json=json.dumps({"slurm.task": str(n)})) for n in range(1, 11)]
    (advice,) = advise(rows, by=job_of)
    assert advice.line is None
    (asked,) = advise(rows, by=job_of, feature="slurm.task")
    assert asked.line is not None
    written = TARGETS["text"](asked)
    assert ", and 20.0 MiB more for each one; this explains" in written
    assert "fitted for 1 to 10" in written
    said = TARGETS["slurm"](asked)
    assert "up to 3, " in said
    assert "up to 5.5" not in said


def test_an_input_is_given_in_sizes() -> None:
    rows = [row(20 + 2 * n, input_bytes=n * MIB) for n in range(10, 40)]
    (advice,) = advise(rows, by=job_of)
    written = TARGETS["text"](advice)
    assert ", and 2.0 MiB more for each MiB; this explains" in written
    assert "fitted for 10.0 MiB to 39.0 MiB" in written
    assert "MiB up to 39.0 MiB" in TARGETS["slurm"](advice)


def test_what_a_control_group_was_charged_needs_no_share_for_the_kernel() -> None:
    charged = row(100, charged=1)
    (advice,), (mixed,) = (advise(rows, by=job_of) for rows in ([charged] * 4, [charged] * 3 + [row(100)]))
    assert advice.memory is not None
    assert mixed.memory == advice.memory + KERNEL_SHARE


def test_one_run_has_no_median() -> None:
    (exact,) = advise([row(100)], by=job_of)
    assert "  needed       100.0 MiB (1 run)\n" in TARGETS["text"](exact)
    (known,) = advise([row(100, high=101 * MIB, certainty="interval")], by=job_of)
    assert "  needed       100.0 MiB, at most 101.0 MiB (1 run)\n" in TARGETS["text"](known)


def test_runs_known_between_wide_bounds_only_are_named() -> None:
    wide = row(100, high=300 * MIB, certainty="interval")
    (advice,) = advise([row(100), row(100), row(101), wide], by=job_of)
    assert advice.memory is not None
    assert advice.memory < 115 * MIB
    assert any(note.startswith("1 run has only a wide range") for note in advice.notes)
    assert advice.largest == 101 * MIB
    line = "median 100.0 MiB, largest at most 300.0 MiB, counted as 101.0 MiB (4 runs)"
    assert line in TARGETS["text"](advice)


def test_a_wide_range_among_two_runs_gives_no_odds() -> None:
    wide = row(150, high=300 * MIB, certainty="interval")
    (advice,) = advise([row(150), wide], by=job_of)
    assert advice.memory is not None
    assert 330 * MIB <= advice.memory < 335 * MIB
    assert advice.odds is None
    assert advice.basis == "2 runs, 1 of them with a wide range"
    assert any(note.startswith("1 run has only a wide range; its upper end counts") for note in advice.notes)


def test_an_input_that_explains_the_memory_scales_it() -> None:
    rows = [row(20 + 2 * size, input_bytes=size * 10**6) for size in range(10, 40)]
    (advice,) = advise(rows, by=job_of)
    assert advice.line is not None
    assert advice.input_name == "input"
    assert advice.line.at(20e6) == pytest.approx(60 * MIB, rel=0.2)
    assert "lambda wildcards, input: max(" in TARGETS["snakemake"](advice)
    tagged = [row(20 + 2 * size, tags_json=json.dumps({"rows": str(size)})) for size in range(10, 40)]
    (advice,) = advise(tagged, by=job_of, feature="rows")
    assert advice.input_name == "rows"
    for target in ("slurm", "kubernetes", "docker", "snakemake", "nextflow"):
        comment = next(line for line in TARGETS[target](advice).splitlines() if "it grows with rows" in line)
        assert comment.endswith(f"{-(-(advice.memory or 0) // MIB)} MiB up to 39")
        assert "up to 17," in comment
    (advice,) = advise([row(100, input_bytes=n) for n in range(10)], by=job_of, feature="input")
    assert advice.line is None
    assert any("does not explain" in note for note in advice.notes)


def test_targets_speak_their_own_words() -> None:
    (advice,) = advise([row(100)] * 5, by=job_of)
    mebibytes = -(-(advice.memory or 0) // MIB)
    written = {name: write(advice) for name, write in TARGETS.items()}
    assert f"#SBATCH --mem={mebibytes}M\n#SBATCH --cpus-per-task=2\n#SBATCH --time=00:0" in written["slurm"]
    assert f"--memory={mebibytes}m --memory-swap={mebibytes}m --cpus=2" in written["docker"]
    assert f"    memory: {mebibytes}Mi\n    cpu: 1500m\n  limits:" in written["kubernetes"]
    assert f"mem_mb={-(-(advice.memory or 0) // 10**6)}," in written["snakemake"]
    assert f"withName: 'train.py' {{\n        memory = {mebibytes}.MB" in written["nextflow"]
    document: Any = to_json(advice)
    assert document["memory"]["target"] == advice.memory


def test_a_change_is_reported_where_the_bounds_exclude_that_there_is_none() -> None:
    before = row(100, started=1000.0)
    assert (
        what_changed(row(100.5, started=1060.0), [before])
        == "nothing since the previous run (1 min 00 s ago)"
    )
    changed = what_changed(row(130, started=1060.0, seconds=60.0), [before])
    assert changed == "memory +30.0 MiB (+30 %), 30.0 s faster since the previous run (1 min 00 s ago)"
    wide = row(130, low=100 * MIB, started=1060.0)
    assert what_changed(wide, [before]) == "nothing since the previous run (1 min 00 s ago)"
    sampled = row(130, high=None, certainty="sampled", started=1060.0)
    assert what_changed(sampled, [before]) == "nothing since the previous run (1 min 00 s ago)"
    assert what_changed(row(100), [row(100, exit_code=1)]) is None
    watched = row(100, started=1060.0, seconds=9.0, mode="attach")
    assert what_changed(watched, [before]) == "nothing since the previous run (1 min 00 s ago)"


@pytest.mark.parametrize(
    "end",
    [{"oom_kills": 1, "signal": 9, "exit_code": None}, {"signal": 15, "exit_code": None}, {"exit_code": 1}],
)
def test_a_run_that_ended_badly_is_no_improvement(end: dict[str, Any]) -> None:
    """A run that its limit ended after 0.6 s was "-174.8 MiB (-47%), 1.62 s faster"."""
    before = row(375, started=1000.0)
    assert what_changed(row(200, started=1060.0, seconds=0.6, **end), [before]) is None


@pytest.mark.parametrize(
    ("limit", "starved", "full"),
    [(220, 0.0, 220), (220, 0.02, 220), (220, 0.3, 295), (220, None, 301), (150, 0.0, 301), (400, 0.0, 301)],
)
def test_a_quick_run_at_its_limit_shows_that_it_suffices(
    limit: int, starved: float | None, full: int
) -> None:
    """pandas reads 107 MiB of libraries at its start, and needs few of them later."""
    free = row(170, file_bytes=107 * MIB, own_cgroup=True, cgroup=280 * MIB)
    limited = row(
        170, file_bytes=30 * MIB, own_cgroup=True, cgroup=limit * MIB, limit=limit * MIB, starved=starved
    )
    (advice,) = advise([free, limited], by=job_of)
    assert advice.full_speed == pytest.approx(full * MIB, abs=MIB)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([None] * 8, "no run has a number for size"),
        ([1, 2, 3, None, 5, 6, 7, 8], "7 of 8 runs have a number for size"),
        ([1, 2, 3], "size needs at least 8 runs"),
        ([5, 1, 8, 3, 2, 7, 4, 6], "size does not explain the memory needed"),
    ],
)
def test_a_feature_without_use_has_its_reason(sizes: list[int | None], reason: str) -> None:
    runs = [
        row(100 + at, tags_json="{}" if size is None else f'{{"size": "{size}"}}')
        for at, size in enumerate(sizes)
    ]
    (advice,) = advise(runs, by=job_of, feature="size")
    assert f"{reason}; the advice is for all inputs" in advice.notes

"""Advice from the rows of runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_memwatch.runs.advice import KERNEL_SHARE, advise, job_of, to_json
from otel_memwatch.runs.advice_targets import TARGETS, sentence
from otel_memwatch.runs.history import what_changed
from otel_memwatch.runs.indexed_run import IndexedRun

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


def test_one_run_has_a_stated_margin() -> None:
    (advice,) = advise([row(100)], by=job_of)
    assert advice.memory == pytest.approx(110 * MIB + KERNEL_SHARE, abs=1)
    assert "from one run: 10% are added" in advice.notes[0]
    assert "from one run" in sentence(advice)


def test_runs_that_have_little_in_common_are_not_advised_in_a_line() -> None:
    """Two runs of 15 and of 350 MiB promise nothing; 52 GiB were said to be needed."""
    (advice,) = advise([row(15), row(350)], by=job_of)
    assert (
        sentence(advice)
        == "no figure to ask for: 2 runs of up to 350.0 MiB differ too much (wrap --name tells jobs apart)"
    )


def test_what_is_added_for_others_or_was_needed_by_a_failed_run_is_no_difference() -> None:
    """One run of 300 KiB was said to differ too much, from nothing: its advice has a MiB for the kernel."""
    (tiny,) = advise([row(0.3)], by=job_of)
    assert sentence(tiny).startswith("ask for 2 MiB (from one run)")
    (watched,) = advise([row(5)], by=job_of, monitor_share=25 * MIB)
    assert sentence(watched).startswith("ask for 32 MiB (from one run)")
    (failed,) = advise([row(100), row(100), row(500, exit_code=1)], by=job_of)
    assert sentence(failed).startswith("ask for 501 MiB (2 runs;")
    killed = row(500, exit_code=None, signal=9, oom_kills=1, limit=500 * MIB)
    (guess,) = advise([row(100), row(100), killed], by=job_of)
    assert sentence(guess).startswith("ask for 751 MiB (a guess)")


@pytest.mark.parametrize("target", ["slurm", "kubernetes", "docker", "snakemake", "nextflow"])
def test_a_target_that_is_given_a_figure_is_not_told_that_there_is_none(target: str) -> None:
    (advice,) = advise([row(15), row(350)], by=job_of)
    said = [line for line in TARGETS[target](advice).splitlines() if line.startswith(("# ", "// "))]
    assert "ask for" in said[0]
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
    (advice,) = advise([row(100, cgroup=180 * MIB)], by=job_of, monitor_share=25 * MIB)
    assert advice.memory == pytest.approx(135 * MIB + KERNEL_SHARE, abs=1)
    assert any(note.startswith("80.0 MiB of page cache") for note in advice.notes)
    assert any("25 MiB of it are for the monitor" in note for note in advice.notes)


def test_programs_that_are_larger_than_what_is_needed_are_named() -> None:
    (advice,) = advise([row(6, process=19 * MIB, process_low=19 * MIB)] * 3, by=job_of)
    assert any(note.startswith("13.0 MiB of page cache (files, programs") for note in advice.notes)
    (little,) = advise([row(100, process=105 * MIB, process_low=105 * MIB)] * 3, by=job_of)
    (short,) = advise([row(1, process=11 * MIB)] * 3, by=job_of)  # no larger than its launcher was
    assert little.notes == short.notes == ()


def test_what_a_control_group_was_charged_needs_no_share_for_the_kernel() -> None:
    charged = row(100, how="cgroup watermark less page cache")
    (advice,), (mixed,) = (advise(rows, by=job_of) for rows in ([charged] * 4, [charged] * 3 + [row(100)]))
    assert advice.memory is not None
    assert mixed.memory == advice.memory + KERNEL_SHARE


def test_runs_known_between_wide_bounds_only_are_named() -> None:
    wide = row(100, high=300 * MIB, certainty="interval")
    (advice,) = advise([row(100), row(100), row(101), wide], by=job_of)
    assert advice.memory is not None
    assert advice.memory < 115 * MIB
    assert any(note.startswith("1 run known between wide bounds only") for note in advice.notes)
    assert advice.largest == 101 * MIB


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
        assert "up to 17.25," in comment
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


def test_a_change_is_told_where_the_bounds_exclude_that_there_is_none() -> None:
    before = row(100, started=1000.0)
    assert (
        what_changed(row(100.5, started=1060.0), [before]) == "nothing, against the run of 1 min 00 s before"
    )
    changed = what_changed(row(130, started=1060.0, seconds=60.0), [before])
    assert changed == "memory +30.0 MiB (+30%), 30.0 s faster, against the run of 1 min 00 s before"
    wide = row(130, low=100 * MIB, started=1060.0)
    assert what_changed(wide, [before]) == "nothing, against the run of 1 min 00 s before"
    assert what_changed(row(100), [row(100, exit_code=1)]) is None

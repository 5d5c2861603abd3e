"""The summary and the text report of synthetic runs, against golden files, and where their words matter."""

from __future__ import annotations

import html
import json
import os
import re
from io import BytesIO
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from otel_memwatch.model import Evidence, Peak
from otel_memwatch.reports import phrases, render
from otel_memwatch.reports.markdown_summary import markdown
from otel_memwatch.reports.summary import summary
from otel_memwatch.reports.text_report import text
from otel_memwatch.run import Peaks, RecordedRun, load
from otel_memwatch.runtime.terminal import Display
from otel_memwatch.text import cells, duration
from otel_memwatch.truth.exact import at_least
from tests.support import recorded
from tests.support.golden import check_golden

MIB = 1 << 20
SCENES = ("short", "workers", "nested", "gpus")


def scene(name: str, path: Path) -> RecordedRun:
    return load(getattr(recorded, name)(path / name))


def changed(path: Path, **fields: object) -> RecordedRun:
    """The run with fields of its run.json replaced."""
    file = path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return load(path)


@pytest.mark.parametrize("name", SCENES)
def test_summary(name: str, tmp_path: Path) -> None:
    run = scene(name, tmp_path)
    told = summary(run)
    assert told.count("\n") < 8
    check_golden(f"{name}.summary.txt", told + "\n", run=run.path)


@pytest.mark.parametrize("name", SCENES)
def test_text(name: str, tmp_path: Path) -> None:
    run = scene(name, tmp_path)
    check_golden(f"{name}.report.txt", text(run), run=run.path)


def test_the_oom_killer_is_named(tmp_path: Path) -> None:
    told = summary(scene("nested", tmp_path))
    assert "killed by SIGKILL: the kernel's OOM killer, at 512.0 MiB of 512.0 MiB, after 11.0 s" in told
    assert "97 % of the 512.0 MiB limit" in told


def test_operations_open_at_death_are_named_with_those_around_them(tmp_path: Path) -> None:
    report = text(scene("nested", tmp_path))
    death = report[report.index("Open when the run was killed") :]
    assert re.search(r"- Train \(pid 100\)", death)
    assert "peak so far 491.0 MiB" in death


def test_the_tree_of_operations_is_indented_and_its_peak_marked(tmp_path: Path) -> None:
    report = text(scene("nested", tmp_path))
    lines = {
        name: next(line for line in report.splitlines() if f" {name} " in line)
        for name in ("Train", "step", "forward")
    }
    assert lines["Train"].index("Train") + 2 == lines["step"].index("step")
    assert lines["step"].index("step") + 2 == lines["forward"].index("forward")
    assert len([line for line in report.splitlines() if "the run's peak" in line]) == 1
    assert "failed: ValueError" in report


def test_operations_of_several_processes_have_a_column_for_the_pid(tmp_path: Path) -> None:
    lines = [recorded.opened(1, 0.1, "step"), recorded.closed(1, 0.4, 10)]
    one = recorded.record(tmp_path / "one", seconds=1, operations={100: lines})
    two = recorded.record(tmp_path / "two", seconds=1, operations={100: lines, 101: lines})
    assert re.search(r"duration +operation +(needed|resident)", text(load(one)))
    report = text(load(two))
    assert re.search(r"duration +operation +pid +(needed|resident)", report)
    assert re.findall(r" step +(\d+) .* at least ", report) == ["100", "101"]


def test_repeated_names_are_summed_up_without_losing_one(tmp_path: Path) -> None:
    report = text(scene("nested", tmp_path))
    repeated = report[report.index("Repeated names") :]
    assert re.search(r"step +5 +4\.75 s +950 ms +950 ms +340\.0 MiB +440\.0 MiB", repeated)


def test_of_many_processes_the_largest_are_shown(tmp_path: Path) -> None:
    report = text(scene("workers", tmp_path))
    section = report[report.index("Processes\n") : report.index("Totals")]
    assert len(re.findall(r"cc1 file\d+\.c$", section, re.MULTILINE)) == 15
    assert "6 more processes, none above 214.0 MiB." in section


def test_of_many_operations_the_first_the_last_and_the_peak_are_shown(tmp_path: Path) -> None:
    lines = []
    for n in range(1000):
        # Names without a number at their end: such would be one row.
        lines += [
            recorded.opened(n, 1 + n * 0.01, f"op{n}x"),
            recorded.closed(n, 1.005 + n * 0.01, 150 if n == 500 else 100),
        ]
    path = recorded.record(
        tmp_path / "many", seconds=12, operations={100: lines},
        peaks={"tree": recorded.peak(150, at=6.002)},
        processes=recorded.process(100, 0.0, 12, 150),
    )  # fmt: skip
    report = text(load(path))
    timeline = report[report.index("Operations (1000)") : report.index("Processes\n")]
    assert 100 + 20 < timeline.count("\n") < 136
    assert " op99x " in timeline
    assert " op999x " in timeline
    assert re.search(r"op500x .*the run's peak", timeline)
    assert " op300x " not in timeline
    assert sum(int(n) for n in re.findall(r"\.\.\. (\d+) more operations", timeline)) == 1000 - 121


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_of_the_terminal_stops_the_report(encoding: str, tmp_path: Path) -> None:
    out = BytesIO()
    render("text", scene("nested", tmp_path), out, encoding=encoding)
    assert "Export" in out.getvalue().decode(encoding)


def test_a_run_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = recorded.nested(tmp_path / "cut")
    changed(path, state="running", exit=None, peaks=None, totals=None, quality=None, ended=None,
                  host={"name": "another machine"})  # fmt: skip
    os.utime(path / "samples.jsonl", (1, 1))
    run = load(path)
    assert run.state == "incomplete"
    told = summary(run)
    assert "unknown: the monitor died or could not write, last sample at" in told
    assert "cores on average" not in told
    assert "Export" in told
    report = text(run)
    assert re.search(r"CPU time +at least ", report)
    assert "the following totals end with the last sample" in report
    assert run.cores is None


def test_of_a_shared_cgroup_no_words_contradict_its_figure(tmp_path: Path) -> None:
    shared = at_least(147 * MIB, Evidence.CGROUP_LESS_CACHE, Evidence.SAMPLES).to_json()
    tree = at_least(126 * MIB, Evidence.ONE_SAMPLE).to_json()
    report = text(changed(recorded.workers(tmp_path / "w"), peaks={"cgroup": shared, "tree": tree}))
    assert "cgroup less page cache" in report
    assert "includes page cache" not in report
    assert "The run had no dedicated cgroup" in report
    assert "The upper bound assumes" not in report  # there is none


def test_what_would_make_an_interval_exact_is_one_line(tmp_path: Path) -> None:
    hint = "Delegate=yes in the unit job.service"
    wide, near = (
        {"tree": Peak.interval(100 * MIB, high * MIB, estimate=105 * MIB).to_json()} for high in (200, 110)
    )
    path = recorded.workers(tmp_path / "w")
    for processors, figure in ((2, "an exact figure"), (64, "a narrower range")):
        run = changed(path, cgroup_hint=hint, peaks=wide, host={"cpus": processors})
        assert f"for {figure}: {hint}" in summary(run)
    assert "100-200 MiB, best estimate 105 MiB" in summary(load(path))
    assert "for an exact figure" not in summary(changed(path, cgroup_hint=hint, peaks=near))
    assert "for an exact figure" not in summary(changed(recorded.short(tmp_path / "s"), cgroup_hint=hint))


def test_where_cache_parts_the_bounds_shorter_intervals_are_named(tmp_path: Path) -> None:
    wide = Peak.interval(
        100 * MIB, 300 * MIB, evidence=(Evidence.CGROUP_PEAK_LESS_CACHE,), estimate=105 * MIB
    )
    for interval, named in ((0.1, True), (0.02, False)):
        path = recorded.workers(tmp_path / f"{interval}")
        changed(path, peaks={"tree": wide.to_json()}, settings={"interval": interval, "cgroup": "auto"})
        assert ("for a narrower range: --interval 20ms" in summary(load(path))) is named


def test_the_error_of_many_processors_has_no_remedy(tmp_path: Path) -> None:
    peak = Peak.interval(
        155 * MIB, 187 * MIB, evidence=(Evidence.CGROUP_PEAK_LESS_CACHE,), estimate=171 * MIB
    )
    settings = {"interval": 0.1, "cgroup": "auto"}
    path = recorded.workers(tmp_path / "w")
    told = summary(changed(path, peaks={"tree": peak.to_json()}, settings=settings, host={"cpus": 64}))
    assert "the kernel's counters of 64 processors are off by up to 16.0 MiB" in told
    told = summary(changed(path, processors=64, host={"cpus": 2}))  # the monitor may use two
    assert "the kernel's counters of 64 processors are off by up to 16.0 MiB" in told
    assert "--interval" not in told


def test_nothing_known_is_still_a_report(tmp_path: Path) -> None:
    path = tmp_path / "bare"
    path.mkdir()
    (path / "run.json").write_text('{"schema": 1}')
    run = load(path)
    assert "peak memory   unknown" in summary(run)
    assert "peak memory           unknown" in text(run)


def test_marks_and_damage_reach_the_summary(tmp_path: Path) -> None:
    path = recorded.short(tmp_path / "r")
    with (path / "samples.jsonl").open("a") as file:
        file.write("[[[\n[5000.3,1,1,1,1]\n")
    run = changed(
        path,
        state="finished",
        marks=[{"time": recorded.STARTED + 0.2, "text": "recording stopped: disk full"}],
    )
    run.samples()
    assert "trouble       samples.jsonl" in summary(run)
    report = text(run)
    assert "- at 200 ms: recording stopped: disk full" in report
    assert "Unreadable parts of the record" in report


def test_the_summary_shows_the_first_failure_of_a_source(tmp_path: Path) -> None:
    sentences = (
        "a process left the group",
        "source gpu_nvidia failed: no answer",
        "source gpu_nvidia works again",
    )
    marks = [{"time": recorded.STARTED + 0.1, "text": text} for text in sentences]
    run = changed(recorded.short(tmp_path / "r"), marks=marks)
    assert "trouble       source gpu_nvidia failed: no answer (2 more)" in summary(run)
    run = changed(run.path, marks=[*marks, {"time": None, "text": "recording stopped: disk full"}])
    assert "trouble       recording stopped: disk full (3 more)" in summary(run)


def test_the_summary_says_for_how_long_the_memory_of_a_gpu_was_unknown(tmp_path: Path) -> None:
    run = load(recorded.gpus(tmp_path / "r"))
    unknown = {"memory": {"seconds": 5.0, "error": "Unknown Error"}, "power": {"seconds": 9.0, "error": "x"}}
    run = changed(run.path, gpus=[{"id": "GPU-1", "recorded": True, "unknown": unknown}])
    assert "memory of GPU-1 unknown for 5.00 s: Unknown Error" in summary(run)
    assert "power" not in summary(run)
    assert "power unknown for 9.00 s: x" in text(run)
    unknown["memory"]["seconds"] = 1.0
    run = changed(run.path, gpus=[{"id": "GPU-1", "recorded": True, "unknown": unknown}])
    assert "unknown for" not in summary(run)


def test_the_summary_separates_the_runs_gpu_memory_from_that_of_all_programs(tmp_path: Path) -> None:
    path = recorded.gpus(tmp_path / "r")
    whole = Peak.sampled(3 << 30, evidence=(Evidence.DEVICE_SAMPLES,))
    of_run = {"GPU-1": Peak.sampled(1 << 30)}
    for own, words in (
        (of_run, "1.00 GiB (sampled) on GPU-1, 3.00 GiB used by all programs"),
        ({}, "3.00 GiB (sampled) on GPU-1, used by all programs"),
    ):
        peaks = Peaks(gpu={"GPU-1": whole}, gpu_tree=own)
        assert words in summary(changed(path, peaks=peaks.to_json()))


def test_memory_reserved_in_advance_is_distinguished_from_what_the_program_used(tmp_path: Path) -> None:
    path = recorded.gpus(tmp_path / "r")
    held = {"GPU-1": Peak.sampled(100 << 30)}
    for used, words in (
        (Peak.interval(1 << 20, 3 << 30, source="jax watermark"), "JAX used at most 3.00 GiB in operations"),
        (Peak.exact(2 << 30, source="torch.cuda watermark"), "PyTorch used 2.00 GiB in operations"),
        (
            Peak.interval(1 << 30, None, source="cupy+torch.cuda watermark"),
            "CuPy and PyTorch used at least 1.00 GiB in operations",
        ),
    ):
        peaks = Peaks(gpu=held, gpu_tree=held, gpu_used={"GPU-1": used})
        run = changed(path, peaks=peaks.to_json(), gpus=[{"id": "GPU-1", "recorded": True}])
        assert f"100.00 GiB (sampled) on GPU-1, of which {words}" in summary(run)
        assert f"of which {words}" in text(run)
        assert ("XLA_PYTHON_CLIENT_PREALLOCATE" in text(run)) == ("JAX" in words)


def test_an_exact_figure_that_can_be_off_says_by_how_much(tmp_path: Path) -> None:
    path = recorded.short(tmp_path / "r")
    wide = recorded.peak(809.4) | {"low": 807 * recorded.MIB, "high": round(812.4 * recorded.MIB)}
    run = changed(path, peaks={"tree": wide, "main": None, "process": None, "cgroup": None, "gpu": {}})
    assert "809.4 MiB (exact), error at most 3.0 MiB" in text(run)


def test_hostile_names_stay_on_their_line(tmp_path: Path) -> None:
    path = recorded.record(
        tmp_path / "r", seconds=1, command=["sh", "-c", "echo \x1b[31m\nrm"],
        operations={100: [recorded.opened(1, 0.1, "a\nb\x1b[2J"), recorded.closed(1, 0.2, 5)]},
        ended={"reason": "exit\ncode"},
    )  # fmt: skip
    run = load(path)
    for told in (summary(run), text(run)):
        assert "\x1b" not in told
        assert "a\\nb\\x1b[2J" in told


def test_a_peak_is_not_reported_to_be_after_the_end(tmp_path: Path) -> None:
    """The tick that sees it first may be taken when the command has ended."""
    run = scene("short", tmp_path)
    assert run.peaks.tree is not None
    late = run.peaks.tree._replace(at=run.seconds + 1, operation=None)
    assert phrases.when_and_where(run, late) == f"at {duration(run.seconds)}"


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(97, 101, "1 %"), (59, 802, "0.6-8 %"), (5930, 8020, "59-80 %"), (99, 99, "1.0 %")],
)
def test_a_range_of_shares_that_read_the_same_is_one(low: int, high: int, told: str) -> None:
    peak = Peak.interval(low, high, source="")
    assert phrases.limit_share(peak, phrases.Limit(10_000, "machine")) == told


LEFT = recorded.peak(410, "interval", low=404, high=412, evidence=["cgroup_or_process", "left_cgroup"])
INSIDE = recorded.peak(50, evidence=["cgroup_peak"])


@pytest.mark.parametrize(
    ("tree", "by", "breached", "words", "share"),
    [
        (
            LEFT,
            "control group",
            False,
            "the 60.0 MiB limit did not hold: processes left the run's cgroup",
            False,
        ),
        (LEFT, "control group", True, "killed at the 60.0 MiB limit", False),
        (LEFT, "process", None, None, True),
        (
            LEFT,
            None,
            None,
            None,
            True,
        ),  # the limit of an enclosing cgroup, which may still hold the processes
        (INSIDE, "control group", False, None, True),
    ],
)
def test_a_limit_that_processes_left_has_no_percentage(
    tree: dict[str, object],
    by: str | None,
    breached: bool | None,
    words: str | None,
    share: bool,
    tmp_path: Path,
) -> None:
    limit = None if by is None else {"bytes": 60 * MIB, "by": by, "breached": breached, "largest": []}
    peaks = {"tree": tree, "main": None, "process": None, "cgroup": None, "gpu": {}}
    run = changed(recorded.short(tmp_path / "r"), peaks=peaks, limits={"cgroup_bytes": 60 * MIB}, limit=limit)
    out = BytesIO()
    render("html", run, out)
    page = html.unescape(out.getvalue().decode())
    for told in (summary(run), text(run), markdown(run), page):
        assert words is None or words in told
        assert ("did not hold" in told) == ("did not hold" in (words or ""))
    assert bool(re.search(r"limit .* %", summary(run))) == share
    assert (" % used" in text(run)) == share
    assert (" of the cgroup's 60.0 MiB" in page) == share


def test_an_error_that_is_a_large_part_of_a_peak_is_reported(tmp_path: Path) -> None:
    """552 KiB, "exact", of which half is error, would not be."""
    path = tmp_path / "short"
    run = scene("short", tmp_path)
    assert run.peaks.tree is not None
    info = json.loads((path / "run.json").read_text())
    info["peaks"]["tree"] |= {"bytes": 565248, "certainty": "exact", "low": 81920, "high": 1048576}
    (path / "run.json").write_text(json.dumps(info))
    assert "552.0 KiB (exact" in text(load(path))
    assert ", error at most 472.0 KiB" in text(load(path))


def peaks_of(tree: Peak, largest: Peak, **rest: Peak) -> dict[str, object]:
    return Peaks(largest, largest, tree, **rest).to_json()


@pytest.mark.parametrize(
    ("tree", "largest", "words"),
    [
        (  # the watermark of the group less page cache, and VmHWM with pages of files: 10 MiB apart
            Peak.exact(100 * MIB, 2 * MIB, evidence=(Evidence.CGROUP_PEAK,)),
            Peak.exact(112 * MIB, evidence=(Evidence.PROCESS_PEAK,)),
            "includes at least 10.0 MiB of reclaimable file pages",
        ),
        (  # within the error: it is not known how many
            Peak.exact(100 * MIB, 2 * MIB, evidence=(Evidence.CGROUP_PEAK,)),
            Peak.exact(101 * MIB, evidence=(Evidence.PROCESS_PEAK,)),
            "includes reclaimable file pages",
        ),
        (
            Peak.exact(100 * MIB, evidence=(Evidence.CGROUP_PEAK,)),
            Peak.exact(99 * MIB, evidence=(Evidence.PROCESS_PEAK,)),
            None,
        ),
        # what ticks saw of the tree is less for another reason
        (
            Peak.sampled(100 * MIB, evidence=(Evidence.RSS_SUM,)),
            Peak.exact(112 * MIB, evidence=(Evidence.PROCESS_PEAK,)),
            None,
        ),
        (
            Peak.interval(100 * MIB, None, evidence=(Evidence.CGROUP_PEAK,)),
            Peak.exact(112 * MIB, evidence=(Evidence.PROCESS_PEAK,)),
            None,
        ),
    ],
)
def test_why_the_largest_process_is_above_what_all_needed(
    tree: Peak, largest: Peak, words: str | None, tmp_path: Path
) -> None:
    path = recorded.workers(tmp_path / "run")
    run = changed(path, peaks=peaks_of(tree, largest))
    for told in (summary(run), text(run)):
        if words is None:
            assert "reclaimable file pages" not in told
        else:
            label = next(i for i, line in enumerate(told.splitlines()) if "  largest" in line)
            assert words in "\n".join(told.splitlines()[label : label + 3])


def test_huge_pages_stand_beside_what_was_needed(tmp_path: Path) -> None:
    path = recorded.short(tmp_path / "run")
    peak = Peak.exact(MIB, evidence=(Evidence.PROCESS_PEAK,))
    run = changed(path, peaks=peaks_of(peak, peak, hugetlb=Peak.sampled(200 * MIB)))
    for told in (summary(run), text(run)):
        assert "plus 200.0 MiB of huge pages (hugetlbfs), which" in told
    forked = changed(
        recorded.workers(tmp_path / "forked"), peaks=peaks_of(peak, peak, hugetlb=Peak.sampled(200 * MIB))
    )
    assert "(hugetlbfs), shared ones in each process, which" in summary(forked)
    assert "huge pages" not in summary(changed(path, peaks=peaks_of(peak, peak)))


def test_memory_in_swap_stands_beside_what_was_needed(tmp_path: Path) -> None:
    path = recorded.short(tmp_path / "run")
    peak = Peak.exact(60 * MIB, evidence=(Evidence.CGROUP_PEAK,))
    for told in (summary, text):
        for swap, words in ((108 * MIB, True), (MIB // 4, False)):
            run = changed(path, peaks=peaks_of(peak, peak, swap=Peak.sampled(swap)))
            assert ("plus 108.0 MiB in swap" in told(run)) == words


def epochs(path: Path, number: int = 60, batches: int = 5) -> Path:
    """A record of numbered epochs with equal batches in them; the peak is in a batch of epoch 57, one batch failed."""
    lines = []
    for epoch in range(number):
        begin, own = 1 + epoch * 0.1, epoch * 100
        lines.append(recorded.opened(own, begin, f"epoch {epoch}"))
        for batch in range(batches):
            at, span = begin + 0.01 + batch * 0.01, own + 1 + batch
            peaked, failed = (epoch, batch) == (57, 2), (epoch, batch) == (3, 1)
            lines.append(recorded.opened(span, at, "batch", parent=own))
            closing = recorded.closed(span, at + 0.008, 150 if peaked else 100)
            lines.append(closing | ({"status": "error", "error": "ValueError"} if failed else {}))
        lines.append(recorded.closed(own, begin + 0.09, 150 if epoch == 57 else 100))
    return recorded.record(
        path, seconds=8, operations={100: lines}, peaks={"tree": recorded.peak(150, at=1 + 5.7 + 0.033)},
        processes=recorded.process(100, 0.0, 8, 150),
    )  # fmt: skip


def test_equal_operations_are_one_row_with_what_is_special_beside_it(tmp_path: Path) -> None:
    report = text(load(epochs(tmp_path / "run")))
    timeline = report[report.index("Operations (360)") : report.index("Repeated names")].splitlines()
    rows = [line for line in timeline if "epoch" in line or "batch" in line]
    assert len(rows) == 4
    assert re.search(r"  5\.40 s  epoch 0 \.\.\. epoch 59 \(60 times\) .*90 ms each, longest 90 ms", rows[0])
    assert re.search(r"  2\.40 s    batch \(300 times\) .*150\.0 MiB", rows[1])
    assert re.search(r"    batch in epoch 3 .*failed: ValueError", rows[2])
    assert re.search(r"    batch in epoch 57 .*the run's peak", rows[3])


def test_a_narrow_terminal_gets_no_line_that_breaks(tmp_path: Path) -> None:
    for name in SCENES:
        run = scene(name, tmp_path)
        for width in (50, 60, 80, 200):
            display = Display(width)
            for told in (summary(run, display), text(run, display)):
                # A path stays whole, to be copied.
                lines = [line for line in told.splitlines() if "/test_" not in line]
                assert max(map(cells, lines)) <= width, (name, width)
    assert "229.0 MiB" in text(scene("workers", tmp_path / "again"), Display(60))


def test_colours_say_nothing_that_words_do_not(tmp_path: Path) -> None:
    run = scene("nested", tmp_path)
    for make in (summary, text):
        coloured = make(run, Display(None, colour=True))
        assert "\x1b[1;31mkilled by SIGKILL" in coloured
        assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == make(run)


def test_lines_of_others_precede_the_links(tmp_path: Path) -> None:
    told = summary(scene("short", tmp_path), more=[("advice", "request 230 MiB")]).splitlines()
    assert told[-2:] == ["  advice        request 230 MiB", told[-1]]
    assert "details" in told[-1]


def test_markdown_lists_the_largest_operation_of_each_name_and_emphasizes_the_peak(tmp_path: Path) -> None:
    lines = [recorded.opened(1, 0.1, "Load"), recorded.closed(1, 0.2, 40)]
    for number in (2, 3, 4):
        lines += [recorded.opened(number, number, "step"), recorded.closed(number, number + 0.5, 10 * number)]
    peaks = {"tree": recorded.peak(40, at=0.15)}
    path = recorded.record(tmp_path / "run", seconds=5, operations={100: lines}, peaks=peaks)
    shown = markdown(load(path))
    rows = [line for line in shown.splitlines() if re.match(r"\| (Load|step) ", line)]
    assert [row.split("|")[1:3] for row in rows] == [[" Load ", " 40.0 MiB "], [" step ", " 40.0 MiB "]]
    assert rows[0].endswith("| **the run's peak** |")
    assert "2 more operations." in shown


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exit_code": 3, "reason": "exit code 3"}, "Open at the end:"),
        ({"exit_code": None, "signal": 9, "reason": "killed by SIGKILL"}, "Open when the run was killed:"),
    ],
)
def test_only_a_signal_kills_a_run(ended: dict[str, object], words: str, tmp_path: Path) -> None:
    operations = {100: [recorded.opened(1, 0.1, "Save")]}
    path = recorded.record(tmp_path / "run", seconds=1, operations=operations, ended=ended)
    assert words in text(load(path))


@pytest.mark.parametrize("name", SCENES)
def test_markdown_is_markdown_and_nothing_else_in_it(name: str, tmp_path: Path) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown(scene(name, tmp_path)))
    assert tokens[0].tag == "h3"
    tables = sum(token.type == "table_open" for token in tokens)
    assert tables == (2 if name == "nested" else 1)
    # What stands outside the tables are sentences; a row that has fallen out of its table would be one with bars.
    inside = False
    for token in tokens:
        inside = token.type == "table_open" or (inside and token.type != "table_close")
        assert inside or "|" not in token.content


def test_a_run_of_another_that_no_process_waited_for_does_not_stutter(tmp_path: Path) -> None:
    run = changed(recorded.short(tmp_path / "r"), exit={"exit_code": None, "signal": None, "reason": "ended"})
    assert "  result        ended after 350 ms\n" in summary(run) + "\n"


def test_what_lives_was_not_read_before_its_end(tmp_path: Path) -> None:
    path = recorded.short(tmp_path / "r")
    alive = recorded.process(100, 0.0, None, 150)
    (path / "processes.jsonl").write_text(
        "".join(
            json.dumps({**line, "time": recorded.STARTED + line["time"], "start": recorded.STARTED}) + "\n"
            for line in alive
        )
    )
    unfinished = {"peaks": None, "totals": None, "quality": None, "exit": None, "ended": None}
    host = {"name": os.uname().nodename}
    for monitor, told in (({"pid": os.getpid()}, False), ({"pid": 2**22 + 5}, True)):
        run = changed(
            path, state="running", host=host, monitor=monitor, started={"wall": 2e9, "monotonic": recorded.STARTED}, **unfinished
        )  # fmt: skip
        assert run.state == ("incomplete" if told else "running")
        assert ("last read before its end" in text(run)) == told


@pytest.mark.parametrize(
    ("upper", "named"), [(Evidence.SHARED_CGROUP_PEAK, True), (Evidence.PAGE_FAULTS, False)]
)
def test_a_bound_from_before_the_recording(upper: Evidence, named: bool, tmp_path: Path) -> None:
    path = scene("short", tmp_path).path
    tree = Peak.interval(38 * MIB, 79 * MIB, evidence=(Evidence.ONE_SAMPLE, upper))
    around = Peak.censored(79 * MIB, evidence=(Evidence.AROUND_PEAK, Evidence.AROUND_NOT_REACHED))
    peaks = Peaks(None, None, tree, around).to_json()
    told = summary(changed(path, monitor={"mode": "attach"}, peaks=peaks))
    assert ("the upper bound is a peak of the cgroup from before the recording" in told) is named


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (0, "not read from disk"),
        (0.001, "at most 0.1 % of it read from disk"),
        (7, "at most 7 % of it read from disk"),
        (100, "read at most once"),
        (650, "read at most 6.5 times"),
    ],
)
def test_how_much_of_a_mapped_file_was_read(read: float, words: str, tmp_path: Path) -> None:
    path = scene("short", tmp_path).path
    file = {"path": "/data/big", "bytes": 100 * MIB, "mapped": 100 * MIB}
    files = {"bytes": 100 * MIB, "largest": [file]}
    assert f"mapped from big; {words}" in summary(
        changed(path, files=files, totals={"read_bytes": int(read * MIB)})
    )


def test_a_largest_process_without_a_command_line(tmp_path: Path) -> None:
    """As after a full disk: its lines are missing, and the peak is known."""
    path = scene("workers", tmp_path).path
    (path / "processes.jsonl").unlink()
    (line,) = [line for line in summary(load(path)).splitlines() if line.startswith("  largest")]
    assert re.match(r"  largest +pid \d+: ", line)

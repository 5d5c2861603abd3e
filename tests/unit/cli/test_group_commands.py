"""Commands that take a group as they take a run."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from types import SimpleNamespace

import pytest

from otel_memwatch.cli import module_of
from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.reports.summary import summary
from otel_memwatch.run import load
from tests.support.rank_runs import Clock, Course, rank_run
from tests.support.run_directory import MIB


@pytest.fixture
def run(capfd):
    def told(command, *arguments):
        module = importlib.import_module(module_of(command))
        module.command.main([str(one) for one in arguments], standalone_mode=False)
        return capfd.readouterr().out

    return told


def ranks(home, largest, *, group="train", hosts=2, begin=0.0, **more):
    for rank in range(4):
        host = rank % hosts
        course = Course(
            [begin, begin + 0.5, begin + 2.5, begin + 3.0], [10 * MIB, (largest + rank) * MIB, 10 * MIB, 0]
        )
        rank_run(
            home / f"{group}-{rank}", course, rank=rank, size=4, group=group, clock=Clock(f"boot-{host}"),
            quality={"ticks": 30}, totals={"cpu_seconds": 1.5, "write_bytes": 4096}, **more,
        )  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    monkeypatch.setenv("OTEL_MEMWATCH_RUNS", str(runs))
    monkeypatch.chdir(tmp_path)
    ranks(runs, 100)
    return runs


def test_report_in_every_form(home, tmp_path, run):
    told = run("report", "train")
    assert "4 ranks on 2 hosts" in told
    (largest,) = [line for line in told.splitlines() if line.startswith("  largest rank")]
    assert largest.endswith(("103.1 MiB (exact)", "103.0 MiB (exact)"))
    document = json.loads(run("report", "train", "--json"))
    assert document["memory"]["together"]["low"] <= 406 * MIB <= document["memory"]["together"]["high"]
    assert [host["runs"] for host in document["hosts"]] == [2, 2]
    run("report", "train", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in page
    assert page.count("<polyline") == 5
    assert "<script" not in page


@pytest.mark.parametrize("old", [("--barrier", "step"), ("--clock-error", "0.1")])
def test_options_of_clocks_are_accepted_with_a_note(home, capfd, old):
    module = importlib.import_module(module_of("report"))
    module.command.main(["train", "--json", *old], standalone_mode=False)
    told = capfd.readouterr()
    assert json.loads(told.out)["memory"]["together"]["how"] == "sum of the hosts' own peaks"
    assert (
        told.err == f"otel-memwatch: {old[0]} is ignored. Across hosts the hosts' own peaks are added up.\n"
    )
    module.command.main(["--help"], standalone_mode=False)
    assert old[0] not in capfd.readouterr().out


def test_a_rank_is_a_run(home, run):
    assert "train-2" in run("report", "train/2").splitlines()[0]


def test_names_from_elsewhere_are_no_markup(tmp_path, run):
    ranks(tmp_path, 50, group="<b>&'", command=["<script>alert(1)</script>"])
    run("report", tmp_path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;b&gt;&amp;" in page


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(home, tmp_path, suffix, run):
    run("plot", "train", "-o", tmp_path / f"group.{suffix}")
    assert (tmp_path / f"group.{suffix}").stat().st_size > 5000


def test_plot_of_many_ranks_draws_the_largest_and_what_all_lie_in(tmp_path, run):
    for rank in range(20):
        rank_run(
            tmp_path / f"r{rank}",
            Course([0, 0.4, 2, 2.2], [MIB, (50 + rank) * MIB, MIB, 0]),
            rank=rank,
            size=20,
        )
    run("plot", tmp_path, "-o", tmp_path / "group.svg", "--dark", "--size", "8x5")
    assert "all ranks" in (tmp_path / "group.svg").read_text()


def test_the_command_that_a_ranks_summary_names_reports_its_group(home, tmp_path, run):
    """Not the directory alone: it holds another group too."""
    ranks(home, 50, group="other:1.0")
    for name in ("train", "other:1.0"):
        (named,) = re.findall(r"all ranks: otel-memwatch report (.+)", summary(load(home / f"{name}-0")))
        assert f"group {name}\n" in run("report", *shlex.split(named))


def test_export_makes_a_file_of_each_rank(home, tmp_path, run):
    run("export", "train", "--to", "csv", "-o", tmp_path / "csv")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == [f"rank-{n}.csv" for n in range(4)]
    assert json.loads(run("export", "train", "--to", "json"))["group"]["id"] == "train"


def test_compare_takes_each_group_as_one_run(home, tmp_path, run):
    other = tmp_path / "other"
    ranks(other, 150, group="train2")
    told = json.loads(run("compare", "--format", "json", home, "--", other))
    figures = {figure["figure"]: figure for figure in told["figures"]}
    assert figures["memory"]["base"]["low"] == pytest.approx(406 * MIB, rel=0.02)
    assert figures["memory"]["head"]["low"] == pytest.approx(606 * MIB, rel=0.02)
    assert figures["rank"]["head"]["low"] == 153 * MIB
    assert figures["cpu"]["head"]["low"] == 6.0


def test_tasks_of_an_array_in_a_tree_stay_runs_of_their_own(tmp_path):
    from otel_memwatch.wings.ranks.groups import groups_and_runs

    ranks(tmp_path, 100, identity={"launcher": "slurm array"})
    assert groups_and_runs(str(tmp_path)) == ([], [str(tmp_path)])


def test_advice_for_slurm_is_for_a_host(home, run):
    told = run("advise", "train", "--for", "slurm")
    # Ranks 1 and 3 are on one host: 101 + 103 MiB at one instant.
    megabytes = int(told.split("--mem=")[1].split("M")[0])
    assert 204 <= megabytes <= 300
    assert "all 2 of a host" in run("advise", "train")


def test_live_shows_the_ranks(home, run):
    told = run("live", "train", "--once")
    assert "group train: 4 ranks of 4 on 2 hosts, 0 running" in told
    assert told.count("exit code 0") == 4


@pytest.mark.parametrize("what", ["train", "runs/train-0"])
def test_live_on_a_terminal_without_rich_says_what_it_needs(home, run, monkeypatch, what):
    live = importlib.import_module("otel_memwatch.wings.live.command")
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(live, "sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    monkeypatch.setattr(live, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "rich.live", None)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(Unavailable, match="needs rich"):
        run("live", what)
    monkeypatch.setenv("TERM", "dumb")
    assert run("live", what)


def test_several_groups_are_named(home, run):
    ranks(home, 100, group="second", begin=10.0)
    with pytest.raises(UsageError, match="holds 2 groups: train, second"):
        run("report", home)
    assert "group second" in run("report", f"{home}:second")

"""Changes in the history of a job: steps and drifts are found, noise and outliers are not."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.wings.index import changes_formats, command, runs_page
from otel_memwatch.wings.index.changes import changes
from otel_memwatch.wings.index.changes_formats import FORMATS, cells
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.support import recorded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MIB = 1 << 20


def runs(memory: Iterable[float], name: str = "job", **fields: Any) -> list[IndexedRun]:
    """Runs with so many MiB each."""
    return [
        IndexedRun(
            f"runs/{i}", str(i), "finished", name=name, memory=int(value * MIB), started=float(i)
        )._replace(**{"exit_code": 0, "certainty": "exact", **fields})
        for i, value in enumerate(memory)
    ]


def noise(number: int, seed: int = 0) -> Any:
    return 1 + 0.02 * np.random.default_rng(seed).standard_normal(number)


@pytest.mark.parametrize(("known", "after"), [(100, 5), (40, 6)])
def test_a_step_of_five_percent_is_found_within_a_few_runs(known: int, after: int) -> None:
    # In a short history, a step resembles noise that lasts for several runs: it takes one run more.
    found = 0
    for seed in range(20):
        memory = 200 * noise(known + after, seed)
        memory[known:] *= 1.05
        found += [abs(int(one.first.id) - known) <= 3 for one in changes(runs(memory), None)] == [True]
    assert found >= 18


def test_a_growing_history_of_alike_neighbours_has_few_steps() -> None:
    rng = np.random.default_rng(7)
    found = set()
    for number in range(4):
        apart = rng.standard_normal(60)
        for place in range(1, 60):
            apart[place] = 0.5 * apart[place - 1] + 0.75**0.5 * apart[place]
        rows = runs(200 * (1 + 0.02 * apart))
        found |= {(number, one.first.id) for last in range(8, 61) for one in changes(rows[:last], None)}
    assert len(found) <= 1


def test_noise_without_a_change_has_no_steps() -> None:
    found = [one for seed in range(5) for one in changes(runs(200 * noise(1000, seed)), None)]
    assert len(found) <= 2


@pytest.mark.parametrize("seed", [17, 22, 51])
def test_runs_that_resemble_their_neighbours_have_no_steps(seed: int) -> None:
    # Ten or more steps that follow such noise leave so little of it that each looks certain.
    apart = np.random.default_rng(seed).standard_normal(200)
    for place in range(1, 200):
        apart[place] = 0.5 * apart[place - 1] + 0.75**0.5 * apart[place]
    assert changes(runs(200 * (1 + 0.02 * apart)), None) == []


def test_an_outlier_in_the_newest_run_is_no_drift() -> None:
    memory = 200 * noise(107)
    memory[-1] *= 1.3
    assert changes(runs(memory), None) == []


@pytest.mark.parametrize("kind", ["outliers", "two modes", "killed", "unknown", "constant"])
def test_runs_that_differ_are_no_change(kind: str) -> None:
    rng = np.random.default_rng(1)
    memory = 200 * noise(200)
    if kind == "outliers":
        memory[rng.random(200) < 0.03] *= 1.5
    if kind == "two modes":
        memory = 200 * (1 + 0.005 * rng.standard_normal(200) + 0.1 * (rng.random(200) < 0.3))
    rows = runs([200.0] * 200 if kind == "constant" else memory)
    if kind == "killed":
        # They got less than they needed.
        rows[100:140] = [
            row._replace(memory=100 * MIB, oom_kills=1, exit_code=None, signal=9) for row in rows[100:140]
        ]
    if kind == "unknown":
        rows[100:140] = [row._replace(memory=None) for row in rows[100:140]]
    assert changes(rows, None) == []


def test_equal_runs_show_a_small_step_with_its_place_and_size() -> None:
    (found,) = changes(runs([100.0] * 8 + [103.0] * 4), None)
    assert (found.last.id, found.first.id, found.runs) == ("7", "8", 2)
    assert (found.size, found.is_step, found.is_certain) == (3 * MIB, True, True)
    assert found.low == pytest.approx(3 * MIB)
    assert changes(runs([100.0] * 8 + [100.9] * 4), None) == []  # below 1 MiB


def test_a_slow_growth_is_one_drift() -> None:
    memory = 200 * noise(200) * (1 + 0.2 * np.clip((np.arange(200) - 50) / 100, 0, 1))
    (found,) = changes(runs(memory), None)
    assert not found.is_step
    assert 30 <= int(found.last.id) <= 70
    assert 130 <= int(found.first.id) <= 170
    assert found.low < 40 * MIB < found.high


def test_ranges_that_overlap_are_no_certain_change() -> None:
    rows = runs([100.0] * 8 + [110.0] * 8, certainty="interval")
    wide = [row._replace(low=90 * MIB, high=120 * MIB) for row in rows]
    (found,) = changes(wide, None)
    assert not found.is_certain
    text = FORMATS["text"]([found], 16)
    assert "the ranges overlap" in text
    assert f" {found.first.id} " in text  # paths are relative to the directory below the table
    assert text.endswith("1 change in 16 runs, in runs\n")
    assert "runs/" not in text
    narrow = [row._replace(low=row.memory - MIB, high=row.memory + MIB) for row in rows if row.memory]
    assert changes(narrow, None)[0].is_certain


def test_a_host_that_changed_at_the_same_run_is_named() -> None:
    rows = runs([100.0] * 8 + [110.0] * 8)
    rows = [row._replace(host="a" if int(row.id) < 8 else "b") for row in rows]
    (found,) = changes(rows, None)
    assert found.notes == ("host",)
    assert "also changed: host" in FORMATS["markdown"]([found], 16)


def test_each_group_has_a_separate_history() -> None:
    from otel_memwatch.wings.index.run_fields import columns

    rows = [*runs([100.0] * 8 + [110.0] * 8, host="a"), *runs([300.0] * 16, host="b")]
    (found,) = changes(sorted(rows, key=lambda row: row.started), columns("host", "--group"))
    assert found.group == "a"


def test_a_comment_has_no_argument() -> None:
    words = '["python", "train.py", "--user=ann"]'
    found = changes(runs([100.0] * 8 + [110.0] * 8, name="", command_json=words), None)
    assert "--user=ann" in FORMATS["text"](found, 16)
    assert "| python train.py | memory |" in FORMATS["markdown"](found, 16)


def test_json_has_bytes_and_the_runs_between_which_it_stepped() -> None:
    found = changes(runs([100.0] * 8 + [110.0] * 8), None)
    document = json.loads(FORMATS["json"](found, 16))
    (one,) = document["changes"]
    assert (one["last_run"], one["first_run"], one["change"]) == ("runs/7", "runs/8", 10 * MIB)
    assert document["runs"] == 16


def write(place: Path, memory: Iterable[float]) -> None:
    for number, value in enumerate(memory):
        run = place / f"r{number:02}"
        recorded.short(run)
        document = json.loads((run / "run.json").read_text())
        document["name"] = "job"
        document["started"]["wall"] += 3600 * number
        document["ended"]["wall"] += 3600 * number
        document["peaks"]["tree"] = recorded.peak(value)
        (run / "run.json").write_text(json.dumps(document))


def test_the_command_lists_changes_and_the_page_marks_them(tmp_path: Path) -> None:
    write(tmp_path / "runs", [100.0] * 6 + [110.0] * 6)
    run = CliRunner().invoke
    done = run(command.command, ["list", "--changes", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    assert "+10.0 MiB (+10.0 %)" in done.stdout
    assert "r06" in done.stdout
    page = tmp_path / "all.html"
    done = run(command.command, ["list", "--page", str(page), str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    assert '"changes": [{"figure": "memory"' in page.read_text().replace('":', '": ').replace(":  ", ": ")


def test_without_ruptures_the_command_says_so_and_the_page_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """scipy, which a plain installation lacks too, comes with ruptures."""
    for module in ("ruptures", "scipy"):
        monkeypatch.setitem(sys.modules, module, None)
    rows = runs([100.0] * 8 + [110.0] * 8)
    with pytest.raises(Unavailable, match="ruptures"):
        changes(rows, None)
    page = runs_page.html(rows, None, "page.html").decode()
    assert "otel-memwatch[changes]" in page


@pytest.mark.parametrize(
    "words",
    [["--columns", "name"], ["--format", "csv"], ["--sort", "memory"], ["--page", "x.html"], ["--wasted"]],
)
def test_changes_exclude_other_tables(tmp_path: Path, words: list[str]) -> None:
    recorded.short(tmp_path / "a")
    done = CliRunner().invoke(command.command, ["list", "--changes", *words, str(tmp_path)])
    assert isinstance(done.exception, UsageError)


def test_markdown_is_for_changes(tmp_path: Path) -> None:
    recorded.short(tmp_path / "a")
    done = CliRunner().invoke(command.command, ["list", "--format", "markdown", str(tmp_path)])
    assert isinstance(done.exception, UsageError)


def test_a_row_has_one_unit() -> None:
    memory = [0.9 * value for value in noise(10)] + [2.5 * value for value in noise(10, 1)]
    [found] = changes(runs(memory), None)
    assert cells(found)[3:6] == ("0.9 MiB", "2.5 MiB", "+1.6 MiB (+179.1 %)")
    assert cells(found)[6] == "+1.6 MiB"


@pytest.mark.parametrize("last", [11.8, 12.2])
def test_two_steps_that_are_large_together_are_listed_and_no_drift(last: float) -> None:
    small = 0.05 * np.random.default_rng(0).standard_normal(120)
    memory = [10.0] * 30 + [10.9] * 30 + [last] * 60
    one, other = changes(runs(np.array(memory) + small), None)
    assert (one.is_step, other.is_step) == (True, True)
    assert (int(one.first.id), int(other.first.id)) == (30, 60)
    assert 0.8 * MIB < one.size < 1.0 * MIB
    assert changes(runs(np.array(memory[:60]) + small[:60]), None) == []


def test_heavy_tails_need_a_larger_step() -> None:
    history = 200 + 4 * np.random.default_rng(0).standard_t(3, 150)
    assert sum(bool(changes(runs(history[:known]), None)) for known in range(8, 150)) <= 4


def test_a_step_names_the_subject_of_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = {"a" * 40: "old", "b" * 40: "new: keep all rows"}
    monkeypatch.setattr(
        changes_formats, "subjects", lambda wanted: {commit: commits[commit] for commit in wanted}
    )
    rows = runs([100.0] * 8 + [110.0] * 8)
    rows = [row._replace(commit=("b" if int(row.id) >= 8 else "a") * 40) for row in rows]
    for form in ("text", "markdown"):
        assert "bbbbbbbbbb: new: keep all rows" in FORMATS[form](changes(rows, None), 16)

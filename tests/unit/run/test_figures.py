"""The table of figures, and what follows from it."""

from __future__ import annotations

import json

import pytest

from otel_memwatch.catalog import METRICS
from otel_memwatch.config import parse_budget
from otel_memwatch.model import Certainty, Peak
from otel_memwatch.run import load
from otel_memwatch.run.figures import (
    FIGURES,
    NAMES,
    TIMES,
    Figure,
    at_end,
    bounded_at_end,
    figure_name,
    figures_of,
    largest,
    order,
    unit_of,
)
from otel_memwatch.run.results import Peaks
from otel_memwatch.text import peak_sentence
from otel_memwatch.wings.gate.budgets import Budget, Judgement, judge
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.run_row import row_of
from tests.support import recorded
from tests.support.sound_run import sound

GIB, MIB = 1 << 30, 1 << 20

EXACT, SAMPLED, INTERVAL, CENSORED = (
    Certainty.EXACT,
    Certainty.SAMPLED,
    Certainty.INTERVAL,
    Certainty.CENSORED,
)


def test_judged_figures_are_in_the_order_of_tables():
    assert NAMES == ("memory", "process", "gpu", "written", "cpu", "seconds")
    assert {"cpu", "seconds"} == TIMES
    assert sorted([*reversed(NAMES), "operation:a"], key=order) == [*NAMES, "operation:a"]


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row.name)
def test_a_row_names_what_exists(row):
    assert len([one for one in FIGURES if one.name == row.name]) == 1
    assert not row.field or row.field in IndexedRun._fields
    if row.metric:
        assert METRICS[row.metric[0]].unit == row.unit
    assert not row.metric_high or METRICS[row.metric_high].unit == row.unit
    if row.judged:
        assert parse_budget(f"{row.name}=1{'s' if row.unit == 's' else 'GiB'}")[0] == row.name
        assert unit_of(row.name) == row.unit
        assert figure_name(row.name) == row.words


def test_figures_of_operations_have_words():
    assert figure_name("operation:Train") == "operation Train"
    assert figure_name("operation-process:Train") == "process of operation Train"
    assert figure_name("test\n") == "test\\n"


def test_gpu_memory_is_the_runs_if_the_driver_lists_processes(tmp_path):
    mine, whole = Peak.sampled(GIB), Peak.sampled(3 * GIB)
    path = recorded.gpus(tmp_path / "run")
    info = json.loads((path / "run.json").read_text())
    for by_process, expected in (({"GPU-1": mine}, GIB), ({}, 3 * GIB)):
        peaks = Peaks(gpu={"GPU-1": whole}, gpu_tree=by_process)
        (path / "run.json").write_text(json.dumps({**info, "peaks": peaks.to_json()}))
        figure = figures_of(load(path)).figures["gpu"]
        assert (figure.value, row_of(str(path)).gpu) == (expected, expected)
        assert bool(figure.basis) is bool(by_process), "figures of both kinds are not compared"


def test_all_readers_of_the_table_give_the_same_numbers(tmp_path):
    sound(tmp_path, name="train")
    run, row = load(tmp_path), row_of(str(tmp_path))
    judged = figures_of(run).figures
    exported = {name for name, _, _ in at_end(run)}
    for figure in FIGURES:
        if figure.judged and figure.name in judged and figure.field:
            assert getattr(row, figure.field) == pytest.approx(judged[figure.name].value)
            assert not figure.metric or figure.metric[0] in exported
    assert row.memory == run.peaks.tree.bytes
    assert dict(bounded_at_end(run))["memwatch.tree.memory.peak"] == run.peaks.tree.bytes


def test_a_verdict_allows_for_files_in_memory_that_the_bounds_exclude():
    """60 MiB went to /dev/shm between two samples, or to a pipe: a budget of 30 MiB may be exceeded."""
    peak = Peak.interval(1, 15 * MIB, excludes=("kernel", "files in memory"), excluded_bytes=60 * MIB)
    assert Peak.from_json(json.loads(json.dumps(peak.to_json()))) == peak
    figures = {"memory": Figure.of_peak(peak)}
    budgets = [Budget("memory", limit * MIB) for limit in (30, 80)]
    assert [one.judgement for one in judge(figures, budgets)] == [Judgement.UNKNOWN, Judgement.WITHIN]
    assert "excluding files in memory and pipes" in peak_sentence(peak, source=False)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([(9, EXACT, 9, 9)], (9, EXACT, 9, 9)),
        ([(9, CENSORED, None, 9)], (9, CENSORED, None, 9)),
        ([(9, EXACT, 9, 9), (5, SAMPLED, None, 5)], (9, EXACT, 9, 9)),
        ([(9, EXACT, 9, 9), (5, INTERVAL, 5, 20)], (9, INTERVAL, 9, 20)),
        ([(9, EXACT, 9, 9), (5, INTERVAL, 5, None)], (9, INTERVAL, 9, None)),
        ([(9, EXACT, 9, 9), (5, SAMPLED, 5, 10)], (9, SAMPLED, 9, 10)),
        ([(9, CENSORED, None, 9), (5, CENSORED, None, 5)], (9, INTERVAL, None, 9)),
    ],
)  # fmt: skip
def test_the_largest_figure_is_as_certain_as_all_that_may_be_it(figures, expected):
    value, certainty, low, high = expected
    found = largest([Figure(one, how, lower, upper) for one, how, lower, upper in figures], alone=True)
    assert found == Figure(value, certainty, low, high, alone=True)

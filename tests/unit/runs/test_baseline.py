"""A baseline comes back as it was saved, and what is none is refused."""

from __future__ import annotations

import json

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.runs.baseline import load, save
from otel_memwatch.runs.figures import Conditions, Figure, RunFigures

RUNS = [
    RunFigures(
        {
            "memory": Figure(100.5, Certainty.INTERVAL, 99, None, True, "the control group"),
            "operation:a [b], {c}\n": Figure(3, Certainty.EXACT, 2, 4),
        },
        Conditions("Linux 6.18 x86_64", 2, 1 << 34, "MALLOC_ARENA_MAX=1", "here"),
        1700000000.123,
    ),
    RunFigures({}, Conditions(host="there"), 1.0),
]


def test_a_baseline_comes_back_as_it_was_saved(tmp_path):
    path = tmp_path / "baseline.json"
    save(path, RUNS)
    assert [run._replace(name="") for run in load(path)] == RUNS
    assert [p.name for p in tmp_path.iterdir()] == ["baseline.json"]
    assert sum("memory" in line and "interval" in line for line in path.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "conditions": [], "runs": [{}]}',
     '{"schema": 1, "conditions": [{}], "runs": [{"started": 0, "conditions": 0, "figures": {"memory": [1]}}]}',
     '{"schema": 1, "conditions": [{}], "runs": [{"started": 0, "conditions": 0, "figures": {"m": ["1", "exact", 1, 1, 1, ""]}}]}',
     '{"schema": 1, "conditions": [{"x": 1}], "runs": []}'],
)  # fmt: skip
def test_what_is_no_baseline_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="baseline"):
        load(path)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        save(tmp_path / "none" / "baseline.json", RUNS)


def test_it_holds_no_command_and_no_path(tmp_path):
    save(tmp_path / "b.json", [RUNS[0]._replace(name="memwatch-runs/secret")])
    assert "secret" not in (tmp_path / "b.json").read_text()
    assert set(json.loads((tmp_path / "b.json").read_text())) == {"schema", "conditions", "runs"}

"""A baseline comes back as it was saved, and what is none is refused."""

from __future__ import annotations

import json
import os
import threading

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import Conditions, Figure, RunFigures
from otel_memwatch.wings.gate.baseline import load, save

RUNS = [
    RunFigures(
        {
            "memory": Figure(100.5, Certainty.INTERVAL, 99, None, True, "the cgroup"),
            "operation:a [b], {c}\n": Figure(3, Certainty.EXACT, 2, 4),
        },
        Conditions("Linux 6.18 x86_64", 2, 1 << 34, "MALLOC_ARENA_MAX=1", "here"),
        1700000000.123,
    ),
    RunFigures({}, Conditions(host="there"), 1.0, commit="c3" * 20),
]


def test_a_baseline_comes_back_as_it_was_saved(tmp_path):
    path = tmp_path / "baseline.json"
    save(path, RUNS)
    assert [run._replace(name="") for run in load(path)] == RUNS
    assert [p.name for p in tmp_path.iterdir()] == ["baseline.json"]
    assert sum("memory" in line and "interval" in line for line in path.read_text().splitlines()) == 1


def test_an_older_word_for_the_same_way_of_measuring_is_the_same(tmp_path):
    path = tmp_path / "baseline.json"
    save(path, RUNS)
    path.write_text(path.read_text().replace("the cgroup", "the control group"))
    assert load(path)[0].figures == RUNS[0].figures


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


SOUND = {"system": "Linux", "cpus": 2, "memory_bytes": 1, "allocator": "", "host": ""}


def one_run(figure=(1, "exact", 1, 1, False, ""), conditions=SOUND, started=0, position=0):
    figures = {"memory": list(figure)}
    run = {"started": started, "conditions": position, "figures": figures}
    return json.dumps({"schema": 1, "conditions": [conditions], "runs": [run]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 200_000, "nested too deeply"),
        (one_run(conditions={**SOUND, "system": ["Linux"]}), "the condition 'system'"),
        (one_run(conditions={**SOUND, "cpus": "2"}), "the condition 'cpus'"),
        (one_run(conditions={**SOUND, "memory_bytes": 10**400}), "the condition 'memory_bytes'"),
        (one_run(conditions={**SOUND, "cpus": -1}), "the condition 'cpus'"),
        (one_run(conditions={**SOUND, "other": 1}), "the condition 'other'"),
        (one_run(conditions=[]), "damaged"),
        (one_run(position=-1), "not the number of a condition"),
        (one_run(position=True), "not the number of a condition"),
        (one_run(started="now"), "not a time"),
        (one_run(started=1e300), "not a time"),
        (one_run((1e308, "exact", 1, 1, False, "")), "not a number of bytes or seconds"),
        (one_run((1, "exact", -1e308, 1, False, "")), "not a number of bytes or seconds"),
        (one_run((1, ["exact"], 1, 1, False, "")), "damaged"),
        (one_run((1, "exact", 1, 1, "no", "")), "not a figure"),
        (one_run((1, "exact", 1, 1, False, {})), "not a figure"),
        (one_run((1, "exact", 1, 1, False, "")).replace('"figures": {', '"figures": 1, "x": {'), "damaged"),
        ('{"schema": 1, "conditions": []}', "it has no 'runs'"),
    ],
)
def test_each_field_of_the_wrong_kind_is_a_sentence(tmp_path, text, reason):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_sound_baseline_of_one_run_is_read(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(one_run())
    assert len(load(path)) == 1


def test_a_baseline_in_a_pipe_is_read_once_where_the_caller_takes_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(one_run()), daemon=True)
    writer.start()
    assert len(load(path, pipe=True)) == 1
    writer.join(5)
    with pytest.raises(UsageError, match="it is a pipe, not a regular file"):
        load(path)


def test_a_line_break_in_its_name_is_escaped(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "no\nfile")
    assert "no\\nfile" in str(caught.value)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        save(tmp_path / "none" / "baseline.json", RUNS)


def test_it_holds_no_command_and_no_path(tmp_path):
    save(tmp_path / "b.json", [RUNS[0]._replace(name="memwatch-runs/secret")])
    assert "secret" not in (tmp_path / "b.json").read_text()
    assert set(json.loads((tmp_path / "b.json").read_text())) == {"schema", "conditions", "runs"}

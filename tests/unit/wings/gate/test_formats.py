"""Every form of output says what was found, and keeps to its format whatever names and bounds there are."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import Figure, RunFigures
from otel_memwatch.wings.gate import budget_formats, comparison_formats
from otel_memwatch.wings.gate.causes import Cause, Explanation
from otel_memwatch.wings.gate.comparison import compare
from otel_memwatch.wings.gate.judged_runs import LeftOut

MIB = 1 << 20
ODD = 'operation:a|b <script>`x`\n\x1b[31m"&'


def exact(mib, **more):
    return Figure(mib * MIB, Certainty.EXACT, mib * MIB, mib * MIB, True, **more)


BASE = {
    "memory": exact(100),
    "process": exact(90),
    ODD: exact(50),
    "operation:Gone": exact(5),
    "gpu": Figure(MIB, Certainty.SAMPLED, MIB, None, True),
    "seconds": Figure.measured(10),
    "written": Figure(5 * MIB, Certainty.INTERVAL, 5 * MIB, None, True),
}
HEAD = {**BASE, "memory": exact(110), "process": exact(80), "operation:New": exact(7)}
del HEAD["operation:Gone"]
CAUSES = [Cause("operation", 8 * MIB, "in New <b> (operation), only in the head")]
EXPLANATION = Explanation(
    "runs/a", "runs/b", 10 * MIB, CAUSES, 2 * MIB, ["threads of the main process: 1 to 3"]
)
COMPARISON = compare([RunFigures(BASE)], [RunFigures(HEAD), RunFigures(HEAD)])._replace(
    explanation=EXPLANATION
)
CHECKED = [
    ("runs/a|b", [
        {"figure": "memory", "unit": "By", "limit": 10.0 * MIB, "verdict": "over", "value": 12 * MIB, "low": 12 * MIB,
         "high": 12 * MIB, "certainty": "exact", "why": ""},
        {"figure": ODD, "unit": "By", "limit": 10.0 * MIB, "verdict": "cannot tell", "value": None, "low": None, "high": None,
         "certainty": None, "why": "no operation of this name was recorded"},
        {"figure": "seconds", "unit": "s", "limit": 600.0, "verdict": "within", "value": 1.5, "low": 1.5, "high": 1.5,
         "certainty": "exact", "why": ""}])]  # fmt: skip


def schema(name):
    document = json.loads((files("otel_memwatch.wings.gate") / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def test_json_keeps_its_schema():
    schema("comparison").validate(json.loads(comparison_formats.as_json(COMPARISON)))
    schema("budgets").validate(json.loads(budget_formats.as_json(CHECKED)))
    document = json.loads(comparison_formats.as_json(COMPARISON))
    assert document["regressed"] is True
    assert {one["figure"]: one["verdict"] for one in document["figures"]} == {
        "memory": "regressed", "process": "improved", ODD: "same", "operation:Gone": "not comparable",
        "operation:New": "not comparable", "gpu": "not comparable", "seconds": "not enough runs",
        "written": "not comparable"}  # fmt: skip


def several(mib):
    figures = {"memory": mib, "process": mib - 10, "operation:Fit": mib - 20}
    return [RunFigures({name: exact(size)._replace(alone=False) for name, size in figures.items()})]


def test_runs_that_all_figures_lack_are_said_once():
    comparison = compare(several(100), several(101))
    said = "Record 4 more runs of each: figures of several processes or threads vary."
    for form in (comparison_formats.as_table, comparison_formats.as_markdown):
        text = form(comparison)
        assert text.count(said) == 1
        assert "record 4 more" not in text
        assert "varies" not in text


def test_runs_that_two_figures_lack_stand_in_their_rows():
    base, head = several(100), several(101)
    for side in (base, head):
        del side[0].figures["operation:Fit"]
    text = comparison_formats.as_table(compare(base, head))
    assert text.count("record 4 more runs of each; varies with several processes or threads") == 2
    assert "Record" not in text


def test_the_mark_of_a_comment_is_green_only_if_something_is_known():
    marks = [
        comparison_formats.as_markdown(compare(base, head)).split("### ")[1][0]
        for base, head in (
            (several(100), several(101)),
            ([RunFigures({"memory": exact(100)})], [RunFigures({"memory": exact(100)})]),
            ([RunFigures({"memory": exact(100)})], [RunFigures({"memory": exact(200)})]),
        )
    ]
    assert marks == ["\u26aa", "\U0001f7e2", "\U0001f534"]


@pytest.mark.parametrize("make", comparison_formats.FORMATS.values(), ids=comparison_formats.FORMATS)
def test_no_form_lets_a_name_s_control_characters_through(make):
    text = make(COMPARISON)
    assert "\x1b" not in text
    assert text.endswith("\n")


def test_the_comment_has_what_changed_first_and_folds_the_rest():
    text = comparison_formats.as_markdown(COMPARISON)
    lines = text.splitlines()
    assert lines[0] == comparison_formats.MARKER
    assert "1 regressed, 1 improved, 1 unchanged" in lines[2]
    before, folded = text.split("<details>")
    assert "| memory | 100.0 MiB | 110.0 MiB | +10.0 MiB (+10.0 %) | **regressed** |" in before
    assert "largest process" in before
    assert "duration" in folded
    assert "<script>" not in text
    rows = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} <= {6, 7}


def test_a_comment_has_no_argument_and_no_path():
    run = RunFigures(
        BASE, name="/home/ann/base", command=("python", "train.py", "--user=ann"), commit="c3" * 20
    )
    compared = compare([run], [run._replace(name="/home/ann/head")])
    compared = compared._replace(left_out=[LeftOut("/home/ann/failed", "run failed")])
    text = comparison_formats.as_markdown(compared)
    assert "base: python train.py, commit c3c3c3c3c3\n" in text
    assert "failed: run failed" in text
    assert "ann" not in text


def test_junit_counts_failures_and_what_is_unknown():
    root = ET.fromstring(comparison_formats.as_junit(COMPARISON))
    assert root.attrib == {"tests": "8", "failures": "1", "errors": "0", "skipped": "5"}
    assert [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None] == [
        "memory"
    ]
    checked = ET.fromstring(budget_formats.as_junit(CHECKED))
    assert (checked.get("failures"), checked.get("skipped")) == ("1", "1")


def test_services_that_keep_histories_get_the_head():
    entries = json.loads(comparison_formats.as_github_action_benchmark(COMPARISON))
    assert {"name": "memory", "unit": "MiB", "value": 110.0, "range": "± 0", "extra": "2 runs"} in entries
    assert all(isinstance(entry["value"], int | float) for entry in entries)
    metrics = json.loads(comparison_formats.as_bencher(COMPARISON))
    assert metrics["run"]["memory"] == {
        "value": 110 * MIB,
        "lower_value": 110 * MIB,
        "upper_value": 110 * MIB,
    }
    assert metrics["run"]["written-bytes"] == {"value": 5 * MIB, "lower_value": 5 * MIB}
    assert metrics["New"]["memory"]["value"] == 7 * MIB
    assert not any(
        math.isinf(v) for one in metrics.values() for metric in one.values() for v in metric.values()
    )


def test_tables_say_why():
    text = comparison_formats.as_table(COMPARISON)
    assert text.splitlines()[1].startswith("memory")
    assert "only in the base" in text
    assert "(1 base run, 2 head runs)" in text
    assert "no operation of this name" in budget_formats.as_table(CHECKED)
    assert "**over**" in budget_formats.as_markdown(CHECKED)


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_causes_are_lines_and_so_is_the_rest(form):
    text = comparison_formats.FORMATS[form](COMPARISON)
    assert "+8.0 MiB in New" in text
    assert "+2.0 MiB not explained" in text
    assert "threads of the main process: 1 to 3" in text
    document = json.loads(comparison_formats.as_json(COMPARISON))["why"]
    assert (document["rest"], document["explained"]) == (2 * MIB, True)


def known(low, high):
    return Figure(low * MIB, Certainty.INTERVAL, low * MIB, high * MIB, True)


@pytest.mark.parametrize(
    ("base", "head", "change"),
    [
        (exact(2000), exact(2300), "+0.29 GiB (+15.0 %)"),
        (exact(2000), exact(2001), "+1.0 MiB (+0.1 %)"),
        (exact(100), exact(100), "0"),
        # The lower bounds differ by less than the bounds are apart, so their difference says nothing.
        (known(0, 30), known(0, 36), "-"),
    ],
    ids=["one unit", "small", "equal", "wide"],
)
def test_a_change_has_the_unit_of_its_row(base, head, change):
    compared = compare([RunFigures({"memory": base})], [RunFigures({"memory": head})])
    (row,) = comparison_formats.figure_rows(compared.figures)
    assert row[3] == change
    assert "0 B" not in " ".join(row)

"""Conditions on runs."""

from __future__ import annotations

import time

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.index.filter import where
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.run_fields import COLUMNS

ROW = IndexedRun(
    "runs/a", "a", "finished", name="train", tags_json='{"rule": "align", "size": "10"}', command_json='["x", "--big file"]',
    started=time.time() - 3600, seconds=90.0, exit_code=0, memory=3 << 30, oom_kills=0, cpu=45.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    [
        "tag.rule=align and peak>2GiB",
        "peak >= 3GiB and peak <= 3GiB",
        "memory>3GB",
        "duration=90s and seconds<2min",
        "not (state=broken or exit!=0)",
        "tag.size>9",
        "tag.size<9a",
        "tag.rule>9",
        "started>2h",
        "started>2020-01-01",
        "name~RAI",
        "command ~ '--big file'",
        "cores=0.5",
        "name",
        "not error",
        "tag.absent=1 or tag.rule",
        "state=broken and name=x or exit=0",
        "exit=0 or state=broken and name=x",
        "(exit=0 or state=broken) and name=train",
        "not not name=train",
        "not state=broken and name=train",
        "name='and' or name=train",
        'tag.rule!="x); DROP TABLE runs; --"',
        "peak<1e300",
        "run~A",
    ],
)
def test_conditions_that_hold(condition: str) -> None:
    assert where(condition)(ROW)
    assert not where(f"not ({condition})")(ROW)


@pytest.mark.parametrize(
    "condition", ["gpu>0", "gpu!=0", "tag.absent!=1", "oom", "peak>4GiB", "tag.size<9", "started>30min"]
)
def test_conditions_that_do_not_hold(condition: str) -> None:
    assert not where(condition)(ROW)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "a field is missing at the end"),
        ("peak>1 and", "a field is missing at the end"),
        ("peak>", "a value is missing after 'peak>'"),
        ("peak>)", "a value is missing after 'peak>'"),
        ("peak>2XB", "'2XB' is not a size"),
        ("peak>80 MiB", "unexpected 'MiB' (write 80MiB without a space)"),
        ("duration>80 min or name", "unexpected 'min' (write 80min without a space)"),
        ("colour=red", "no field 'colour'"),
        ("(peak>1", "')' is missing at the end"),
        ("peak>1)", "unexpected ')'"),
        ("peak>1 memory", "unexpected 'memory'."),
        ("=1", "unexpected '=1'"),
        ("peak ! 1", "unexpected '! 1'"),
        ("name='x", "the quote is not closed after 'name='"),
        ("started>1", "is not a moment"),
        ("verdict=limitt", "there is no verdict 'limitt'"),
    ],
)
def test_a_mistake_is_named(condition: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        where(condition)
    assert said in error.value.message


def test_a_value_is_a_parameter_and_never_a_part_of_the_expression():
    assert not where("name=\"train') or ('1'='1\"")(ROW)
    assert where("name!=\"') or ('1'='1\"")(ROW)


@pytest.mark.parametrize("field", COLUMNS)
def test_any_field_can_be_compared(field: str) -> None:
    where(f"{field}>1h" if field == "started" else f"{field}>1")(ROW)


@pytest.mark.parametrize(("path", "memory"), [("runs/\udcff", 1 << 70), ("runs/\u00e9", -(1 << 70)), ("", 0)])
def test_any_row_can_be_tested(path, memory):
    row = ROW._replace(path=path, memory=memory)
    assert where(f"run='{path}'")(row)
    assert where("peak>1GiB")(row) is (memory > 1 << 30)


def test_a_condition_that_sqlite_cannot_take_is_one_short_sentence():
    with pytest.raises(UsageError) as caught:
        where(" or ".join(["name=x"] * 50_000))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("depth", [1, 10, 15])
def test_parentheses_within_operators_are_translated(depth):
    text = "name=x or (name=train and " * depth + "name=train" + ")" * depth
    assert where(text)(ROW)
    assert not where(f"not ({text})")(ROW)


@pytest.mark.parametrize("text", ["(" * 50_000 + "peak", "(" * 50_000, "not " * 20_000, "not (" * 20_000])
def test_a_condition_that_is_nested_too_deeply_is_one_short_sentence(text):
    with pytest.raises(UsageError) as caught:
        where(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("nots", "holds"), [(1, False), (2, True), (20_000, True), (20_001, False)])
def test_each_not_turns_the_condition(nots, holds):
    accepts = where("not " * nots + "(" * 50 + "name=train" + ")" * 50)
    assert accepts(ROW) is holds

"""Conditions on runs."""

from __future__ import annotations

import time

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.index.filter import where
from otel_memwatch.wings.index.indexed_run import IndexedRun

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
        "started>2h",
        "started>2020-01-01",
        "name~RAI",
        "command ~ '--big file'",
        "cores=0.5",
        "name",
        "not error",
        "tag.absent=1 or tag.rule",
        "state=broken and name=x or exit=0",
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
        ("", "the name of a field is expected instead of the end"),
        ("peak>", "a value is expected"),
        ("peak>2XB", "'2XB' is not a size"),
        ("colour=red", "no field 'colour'"),
        ("(peak>1", "')' is expected"),
        ("peak>1 memory", "and, or, or the end"),
        ("name='x", "what is"),
        ("started>1", "is not a moment"),
    ],
)
def test_a_mistake_is_named(condition: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        where(condition)
    assert said in error.value.message


@pytest.mark.parametrize("text", ["(" * 50_000 + "peak", "(" * 50_000, "not " * 20_000, "not (" * 20_000])
def test_a_condition_that_is_nested_too_deeply_is_one_short_sentence(text):
    with pytest.raises(UsageError) as caught:
        where(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("nots", "holds"), [(1, False), (2, True), (20_000, True), (20_001, False)])
def test_each_not_turns_the_condition(nots, holds):
    accepts = where("not " * nots + "(" * 50 + "name=train" + ")" * 50)
    assert accepts(ROW) is holds

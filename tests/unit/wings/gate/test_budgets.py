"""Budgets: what is refused, and the three answers."""

from __future__ import annotations

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import NAMES, Figure, unit_of
from otel_memwatch.wings.gate.budgets import Budget, Judgement, judge

MIB = 1 << 20


def exact(value, error=0.0):
    return Figure(value, Certainty.EXACT, value - error, value + error)


def interval(low, high):
    return Figure(low, Certainty.INTERVAL, low, high)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("memory=2GiB", Budget("memory", 2 << 30)),
        ("memory=50M", Budget("memory", 50 * MIB)),
        ("memory = 1.5 MiB", Budget("memory", 1.5 * MIB)),
        ("process=500MB", Budget("process", 5e8)),
        ("operation:a=b=1GiB", Budget("operation:a=b", 1 << 30)),
        ("operation:*=1GiB", Budget("operation:*", 1 << 30)),
        ("seconds=600", Budget("seconds", 600)),
        ("cpu=2h", Budget("cpu", 7200)),
        ("memory=+5%", Budget("memory", 0.05, growth=True)),
        ("stalled=5%", Budget("stalled", 0.05)),
    ],
)
def test_a_budget_is_a_name_and_a_limit(text, budget):
    assert Budget.parse(text) == budget


@pytest.mark.parametrize("name", NAMES)
def test_every_judged_figure_may_have_a_budget(name):
    limit = {"By": "2GiB", "s": "10min"}[unit_of(name)]
    assert Budget.parse(f"{name}={limit}") == Budget(name, {"By": 2 << 30, "s": 600}[unit_of(name)])
    with pytest.raises(UsageError, match=rf"\b{name}\b"):  # the names that exist
        Budget.parse("memroy=2GiB")


@pytest.mark.parametrize(
    "text",
    ["memory", "memory=", "=2GiB", "memory=2X", "memory=-2", "memory=-2GiB", "memory=0MiB", "memory=nanMiB", "memory=infGiB",
     "memory=GiB", "memory=5%", "memory=+5", "memory=+nan%", "memory=+-5%", "seconds=-3", "seconds=nan", "seconds=0",
     "seconds=soon", "seconds=2GiB", "memroy=2GiB", "stalled=2GiB"],
)  # fmt: skip
def test_what_is_no_budget_is_refused_in_a_sentence(text):
    with pytest.raises(UsageError) as refused:
        Budget.parse(text)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("figure", "answer"),
    [
        (exact(90, 5), "within"),
        (exact(95, 5), "within"),
        (exact(98, 5), "cannot tell"),
        (exact(106, 5), "over"),
        (interval(80, 200), "cannot tell"),
        (interval(101, 200), "over"),
        (interval(101, None), "over"),
        (interval(50, None), "cannot tell"),
        (Figure(100, Certainty.CENSORED, None, 100), "within"),
        (Figure(200, Certainty.CENSORED, None, 200), "cannot tell"),
        (Figure(500, Certainty.SAMPLED, 500, None), "cannot tell"),
        (Figure(50, Certainty.SAMPLED, 50, None), "cannot tell"),
        (Figure(50, Certainty.SAMPLED, 50, 60), "within"),
    ],
)
def test_a_figure_is_within_by_its_high_end_and_over_by_its_low_one(figure, answer):
    (verdict,) = judge({"memory": figure}, [Budget("memory", 100)])
    assert verdict.judgement.value == answer
    assert bool(verdict.why) == (answer == "cannot tell")


def test_a_pattern_is_a_budget_of_every_figure_that_it_fits_and_of_no_time():
    figures = {
        "operation:Train": exact(5),
        "operation:Load": exact(20),
        "memory": exact(30),
        "seconds": exact(99),
    }
    verdicts = judge(figures, [Budget("operation:*", 10)])
    assert [(v.name, v.judgement) for v in verdicts] == [
        ("operation:Load", Judgement.OVER), ("operation:Train", Judgement.WITHIN)]  # fmt: skip
    assert "seconds" not in {v.name for v in judge(figures, [Budget("*", 10)])}


def test_a_name_with_a_pattern_s_signs_means_itself_where_it_exists():
    (verdict,) = judge(
        {"operation:a[1]": exact(5), "operation:a1": exact(99)}, [Budget("operation:a[1]", 10)]
    )
    assert verdict.name == "operation:a[1]"


def test_an_operation_that_did_not_happen_is_an_answer():
    (verdict,) = judge({"memory": exact(1)}, [Budget("operation:Train", 10)])
    assert (verdict.judgement, verdict.figure) == (Judgement.UNKNOWN, None)
    assert "no operation" in verdict.why


@pytest.mark.parametrize(
    ("baseline", "answer"),
    [
        ([exact(100)], "within"),
        ([exact(90)], "over"),
        ([exact(90), exact(100)], "cannot tell"),
        ([interval(80, 120)], "cannot tell"),
        ([], "cannot tell"),
        ([Figure(10, Certainty.SAMPLED, 10, None)], "cannot tell"),
    ],
)
def test_growth_is_judged_against_the_baseline(baseline, answer):
    budget = [Budget("memory", 0.05, growth=True)]
    (verdict,) = judge({"memory": exact(104)}, budget, [{"memory": one} for one in baseline])
    assert verdict.judgement.value == answer


def test_a_stalled_share_is_judged_only_by_name():
    figures = {"memory": exact(50 * MIB), "stalled": exact(0.2)}
    (slow,) = judge(figures, [Budget.parse("stalled=5%")])
    assert slow.judgement is Judgement.OVER
    (sizes,) = judge(figures, [Budget.parse("*=1GiB")])
    assert sizes.name == "memory"
    (unknown,) = judge({}, [Budget.parse("stalled=5%")])
    assert (unknown.judgement, unknown.why) == (Judgement.UNKNOWN, "not measured")

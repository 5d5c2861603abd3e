"""Verdicts on differences: what is believed of few runs, what noise hides, what cannot be compared at all."""

from __future__ import annotations

import random
import sys

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import Conditions, Figure, RunFigures
from otel_memwatch.wings.gate.comparison import ComparisonVerdict, Effect, compare, settled

MIB = 1 << 20
HERE = Conditions("Linux 6.18 x86_64", 2, 16 << 30, "", "here")


def exact(mib, *, alone=True, error=0.25, basis=""):
    return Figure(mib * MIB, Certainty.EXACT, (mib - error) * MIB, (mib + error) * MIB, alone, basis)


def interval(low, high, *, alone=True):
    return Figure(low * MIB, Certainty.INTERVAL, low * MIB, None if high is None else high * MIB, alone)


def runs(*figures, name="memory", conditions=HERE, started=0.0):
    return [RunFigures({name: figure}, conditions, started + i, f"r{i}") for i, figure in enumerate(figures)]


def verdict(base, head, **more):
    (found,) = compare(base, head, **more).figures
    return found


def noisy(count, mib, spread, seed=0, *, alone=False):
    rng = random.Random(seed)
    return [exact(mib * (1 + rng.gauss(0, spread)), alone=alone) for _ in range(count)]


@pytest.mark.parametrize(
    ("base", "head", "answer"),
    [
        (exact(120), exact(120.3), ComparisonVerdict.SAME),
        (exact(120), exact(122.4), ComparisonVerdict.REGRESSED),
        (exact(122.4), exact(120), ComparisonVerdict.IMPROVED),
        (exact(20), exact(20.9), ComparisonVerdict.SAME),
        (exact(20), exact(21.5), ComparisonVerdict.REGRESSED),
        (exact(120), exact(150, alone=False), ComparisonVerdict.NOT_ENOUGH),
        (exact(120, alone=False), exact(120), ComparisonVerdict.NOT_ENOUGH),
        (interval(100, 160), interval(150, 180), ComparisonVerdict.NOT_COMPARABLE),
        (interval(100, 130), interval(150, 180), ComparisonVerdict.REGRESSED),
        (interval(100, 130), interval(150, None), ComparisonVerdict.REGRESSED),
        (interval(100, None), interval(150, 160), ComparisonVerdict.NOT_COMPARABLE),
        (interval(150, 180), interval(100, 130), ComparisonVerdict.IMPROVED),
        (interval(44, 84, alone=False), interval(20, 78), ComparisonVerdict.NOT_COMPARABLE),
        (interval(44, 50, alone=False), interval(60, 78), ComparisonVerdict.NOT_ENOUGH),
    ],
)
def test_one_run_against_one_is_believed_where_one_thread_made_the_figure(base, head, answer):
    assert verdict(runs(base), runs(head)).verdict is answer


def test_runs_that_scatter_are_not_believed_though_one_thread_made_them():
    found = verdict(runs(exact(100), exact(110)), runs(exact(120), exact(121)))
    assert (found.verdict, found.more_runs) == (ComparisonVerdict.NOT_ENOUGH, 3)


def test_what_several_made_needs_five_runs_whatever_they_say():
    found = verdict(runs(*noisy(3, 240, 0.06)), runs(*noisy(3, 276, 0.06, 1)))
    assert (found.verdict, found.more_runs) == (ComparisonVerdict.NOT_ENOUGH, 2)
    assert found.why
    quiet = verdict(runs(*noisy(3, 240, 0.0001)), runs(*noisy(3, 240, 0.0001, 1)))
    assert quiet.verdict is ComparisonVerdict.NOT_ENOUGH


def test_the_noise_of_many_runs_decides():
    base = runs(*noisy(12, 240, 0.066))
    assert verdict(base, runs(*noisy(12, 276, 0.066, 1))).verdict is ComparisonVerdict.REGRESSED
    assert verdict(base, runs(*noisy(12, 240, 0.066, 2))).verdict is ComparisonVerdict.NOT_ENOUGH
    quiet = runs(*noisy(5, 120, 0.0007))
    assert verdict(quiet, runs(*noisy(5, 121.2, 0.0007, 1))).verdict is ComparisonVerdict.REGRESSED
    same = verdict(quiet, runs(*noisy(5, 120, 0.0007, 2)))
    assert same.verdict is ComparisonVerdict.SAME
    assert max(abs(same.low), abs(same.high)) < 1.2 * MIB


def test_it_says_how_many_runs_it_takes_and_who_follows_that_gets_an_answer():
    base, head = noisy(100, 240, 0.03), noisy(100, 240, 0.03, 1)
    count, asked = 6, 0
    while asked < 4:
        found = verdict(runs(*base[:count]), runs(*head[:count]), effect=lambda _: Effect(0.03, 0))
        if found.more_runs is None:
            break
        count, asked = count + found.more_runs, asked + 1
    assert (found.verdict, asked > 0) == (ComparisonVerdict.SAME, True)


def test_one_odd_run_moves_no_verdict():
    base = runs(*[exact(100 + i / 10, alone=False) for i in range(6)])
    head = runs(*[exact(100 + i / 10, alone=False) for i in range(5)], exact(1000, alone=False))
    assert verdict(base, head).verdict is ComparisonVerdict.NOT_ENOUGH


def test_figures_that_never_vary_have_the_noise_of_a_page():
    assert verdict(runs(*[exact(100)] * 5), runs(*[exact(100)] * 5)).verdict is ComparisonVerdict.SAME
    assert verdict(runs(*[exact(100)] * 5), runs(*[exact(102)] * 5)).verdict is ComparisonVerdict.REGRESSED


def test_many_figures_are_corrected_together():
    """A difference that is one in a hundred says nothing when a hundred were looked at."""
    rng = random.Random(3)
    names = [f"operation:{i}" for i in range(300)]

    def run(started):
        figures = {name: exact(100 * (1 + rng.gauss(0, 0.05)), alone=False) for name in names}
        return RunFigures(figures, HERE, started)

    found = compare([run(2.0 * i) for i in range(6)], [run(2.0 * i + 1) for i in range(6)])
    assert any(one.low is not None and one.low > 0 for one in found.figures), "uncorrected, some would differ"
    assert not found.having(ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED)


def test_samples_never_decide():
    sampled = Figure(100.0 * MIB, Certainty.SAMPLED, 100.0 * MIB, None, True)
    found = verdict(runs(sampled), runs(exact(400)))
    assert (found.verdict, found.why) == (ComparisonVerdict.NOT_COMPARABLE, "only sampled")


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        (HERE._replace(system="Linux 6.1 x86_64"), "Linux 6.1 x86_64 against Linux 6.18 x86_64"),
        (HERE._replace(cpus=64), "64 processors against 2"),
        (HERE._replace(memory_bytes=64 << 30), "a machine of 64.0 GiB against one of 16.0 GiB"),
        (HERE._replace(allocator="MALLOC_ARENA_MAX=1"), "MALLOC_ARENA_MAX=1 of the allocator against none"),
    ],
)
def test_another_machine_is_not_compared(conditions, why):
    found = verdict(runs(exact(100), conditions=conditions), runs(exact(200)))
    assert (found.verdict, found.why) == (ComparisonVerdict.NOT_COMPARABLE, why)


def test_single_runs_of_another_machine_are_left_out_and_named():
    odd = runs(exact(400), conditions=HERE._replace(cpus=64))
    found = compare(runs(exact(100)) + odd, runs(exact(100.1)))
    assert [one.name for one in found.left_out] == ["r0"]
    assert found.figures[0].verdict is ComparisonVerdict.SAME


def test_memory_known_another_way_is_not_compared():
    found = verdict(runs(exact(100, basis="the cgroup")), runs(exact(110, basis="the processes")))
    assert (found.verdict, found.why) == (
        ComparisonVerdict.NOT_COMPARABLE,
        "measured by the cgroup and by the processes",
    )


def test_an_operation_that_vanished_or_is_new_is_a_row():
    base = [RunFigures({"operation:a": exact(1), "operation:b": exact(1)}, HERE)]
    head = [RunFigures({"operation:b": exact(1), "operation:c": exact(1)}, HERE)]
    assert [(one.name, one.why) for one in compare(base, head).figures] == [
        ("operation:a", "only in the base"), ("operation:b", ""), ("operation:c", "not in the base")]  # fmt: skip


def times(count, seconds, seed, *, started, host="here"):
    rng = random.Random(seed)
    return [
        RunFigures({"seconds": Figure.measured(seconds * (1 + rng.gauss(0, 0.02)))}, HERE._replace(host=host), started + 2 * i)
        for i in range(count)
    ]  # fmt: skip


def test_times_that_were_not_taken_in_turns_are_not_distinguished_from_a_machine_s_hours():
    base = times(8, 10, 0, started=0)
    assert verdict(base, times(8, 11.5, 1, started=1)).verdict is ComparisonVerdict.REGRESSED
    later = verdict(base, times(8, 11.5, 1, started=100))
    assert (later.verdict, later.why.startswith("not interleaved")) == (
        ComparisonVerdict.NOT_COMPARABLE,
        True,
    )
    assert verdict(base, times(8, 20, 1, started=100)).verdict is ComparisonVerdict.NOT_COMPARABLE
    assert verdict(base, times(8, 20, 1, started=1, host="there")).why == "times from different machines"


def test_a_figure_s_effect_can_be_set():
    base, head = runs(exact(100)), runs(exact(104))
    assert verdict(base, head, effect=lambda _: Effect(0.05, 0)).verdict is ComparisonVerdict.SAME
    assert compare(base, head, wanted=lambda name: name != "memory").figures == []


def test_without_scipy_few_runs_are_compared_and_many_say_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert verdict(runs(exact(100)), runs(exact(110))).verdict is ComparisonVerdict.REGRESSED
    with pytest.raises(Unavailable, match=r"otel-memwatch\[compare\]"):
        compare(runs(*[exact(100)] * 5), runs(*[exact(110)] * 5))


def test_more_runs_are_asked_for_until_a_figure_is_known():
    assert settled(runs(*noisy(3, 120, 0.0007, alone=True)))
    assert not settled(runs(*noisy(3, 120, 0.0007)))
    assert settled(runs(*noisy(5, 120, 0.0007)))
    assert not settled(runs(*noisy(6, 240, 0.06)))
    assert settled(times(2, 10, 0, started=0)), "times are not waited for"
    wide = [interval(54 + i % 3, 78) for i in range(5)]
    assert settled(runs(*wide)), "bounds that no further run narrows are not waited for"

"""Every query of every dashboard has an answer from a Prometheus that has several hundred simulated runs."""

from __future__ import annotations

import json
import re

import pytest

from dashboards import promql
from dashboards.boards import boards
from dashboards.records import records
from tests.support import fleet
from tests.support.fleet import HOURS, RUNS
from tests.support.monitored import values

ABSENT = {
    "memwatch_(cgroup|system)_pressure": "a kernel without PSI has none, nor have control groups of version 1",
    "memwatch_tree_gpu_(time|memory_system)": "only open GPU drivers tell it",
    "memwatch_gpu_power_peak|gpu_memory_peak|memwatch_tree_gpu_memory_usage": "the driver's stand-in has to be told while a run goes "
    "on: test_dashboards_data.py does",
    "memwatch_export_failures": "nothing is pushed",
}
"""What the runs here need not have."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fleet")
    server, runs, end = fleet.of_all_kinds(directory)
    yield server, runs, end
    server.close()


def filled(expression):
    return promql.filled(expression, f"{HOURS}h", "2m", price="2")


def asked():
    for name, board in boards().items():
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{name.removesuffix('.json')}/{panel['title']}/{target['refId']}", target


def answer(simulated, target, at=None):
    server, _, end = simulated
    expression = filled(target["expr"])
    if target["instant"]:
        return server.query(expression, time=at or end)
    return values(server, expression, end - HOURS * 3600, end, step="60s")


def test_every_query_has_an_answer(simulated):
    # While some go on: of a run that has just begun, or was slow when it was recorded, not everything exists yet.
    moments = [simulated[2] - before for before in (1200, 2400, 3600, 4800)]
    empty = [
        where
        for where, target in asked()
        if not any(re.search(name, target["expr"]) for name in ABSENT)
        and not any(answer(simulated, target, at) for at in moments)
    ]
    assert not empty, "\n".join(empty)


def test_every_variable_has_choices(simulated):
    server, _, end = simulated
    asked = [
        (name, variable)
        for name, board in boards().items()
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ]
    assert asked
    for name, variable in asked:
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
        found = server.query(f"count by ({label}) (last_over_time({filled(selector)}[{HOURS}h]))", time=end)
        assert [one for one in found if one["metric"].get(label)], f"{name}: {variable['name']}"


def one(simulated, title, **more):
    (target,) = [target for where, target in asked() if where == title]
    return answer(simulated, target, **more)


def test_what_is_reported_of_the_fleet_is_what_was_simulated(simulated):
    _, runs, end = simulated
    (seen,) = one(simulated, "memwatch-fleet/Runs seen/A")
    assert float(seen["value"][1]) == RUNS
    (bad,) = one(simulated, "memwatch-fleet/Ended badly/A")
    assert float(bad["value"][1]) == sum(run.of.service in ("broken", "large") for run in runs)
    (kills,) = one(simulated, "memwatch-fleet/OOM kills/A")
    assert float(kills["value"][1]) == sum(run.of.service == "large" for run in runs)
    middle = end - 3600
    active = sum(run.start <= middle <= run.start + run.seconds for run in runs)
    (now,) = one(simulated, "memwatch-fleet/Runs active/A", at=middle)
    assert abs(float(now["value"][1]) - active) <= 3, "recorded each half a minute"


def test_the_branch_that_grew_is_found(simulated):
    growth = one(simulated, "memwatch-ci/Largest growth against main/A")
    largest = max(growth, key=lambda series: float(series["value"][1]))
    assert largest["metric"]["vcs_ref_head_name"] == "branch-1"
    assert 0.3 < float(largest["value"][1]) < 0.5
    (grew,) = one(simulated, "memwatch-ci/Grew against main/A")
    found = [series for series in growth if float(series["value"][1]) > 0.2]
    assert float(grew["value"][1]) == len(found)
    assert {series["metric"]["vcs_ref_head_name"] for series in found} == {"branch-1"}
    variation = one(simulated, "memwatch-ci/Largest variation without a change/A")
    assert all(0 <= float(series["value"][1]) < 0.1 for series in variation)


def test_gib_hours_are_limits_times_durations(simulated):
    _, runs, _ = simulated
    limits = {"train": 0.5, "tests": 0.25, "large": 200 / 1024}
    (asked_for,) = one(simulated, "memwatch-cost/GiB-hours requested/A")
    exact = sum(limits.get(run.of.service, 0) * run.seconds / 3600 for run in runs)
    # Minutes that are looked at stand for those that are not.
    assert float(asked_for["value"][1]) == pytest.approx(exact, rel=0.1)
    (price,) = one(simulated, "memwatch-cost/Price of unneeded memory/A")
    (unneeded,) = one(simulated, "memwatch-cost/GiB-hours never needed/A")
    assert float(price["value"][1]) == pytest.approx(2 * float(unneeded["value"][1]))
    assert 0 < float(unneeded["value"][1]) < float(asked_for["value"][1])
    requested, needed, shares = (
        {
            (series["metric"]["namespace"], series["metric"]["job"]): float(series["value"][1])
            for series in one(simulated, f"memwatch-cost/Services/{column}")
        }
        for column in "BCE"
    )
    assert shares == pytest.approx({job: needed[job] / requested[job] for job in requested})


def test_groups_are_those_that_were_simulated(simulated):
    _, runs, end = simulated
    middle = end - 3600
    active = sum(run.start <= middle <= run.start + run.seconds for run in runs)
    (ranks,) = one(simulated, "memwatch-groups/Ranks active/A", at=middle)
    assert abs(float(ranks["value"][1]) - active) <= 3, "recorded each half a minute"
    listed = one(simulated, "memwatch-groups/Largest ranks/A")
    assert {series["metric"]["memwatch_group_id"] for series in listed} == {f"group-{n}" for n in range(7)}
    assert len(
        {(s["metric"]["memwatch_group_id"], s["metric"]["memwatch_group_rank"]) for s in listed}
    ) == len(listed)


def at_the_end(run, metric, *labels):
    """Value of a run's series of a metric at its end, by these labels."""
    found = {}
    for series, value in run.of.pages[-1].items():
        name, _, rest = series.partition("{")
        if name == metric:
            known = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            key = tuple(known[label] for label in labels)
            found[key] = found.get(key, 0) + float(value)
    return found


def over_all_runs(runs, metric, how, *labels):
    found = {}
    for run in runs:
        for key, value in at_the_end(run, metric, *labels).items():
            found.setdefault(key, []).append(value * (run.scale if "memory" in metric else 1))
    return {key: how(values) for key, values in found.items()}


def by_label(answers, *labels):
    return {tuple(one["metric"][label] for label in labels): float(one["value"][1]) for one in answers}


def test_operations_are_those_of_all_runs_each_counted_once(simulated):
    server, runs, end = simulated

    def whole(title):
        """A panel over all of the runs and the two minutes until what they sent last is counted."""
        (target,) = [target for where, target in asked() if where == f"memwatch-operations/{title}"]
        expression = filled(target["expr"]).replace(f"[{HOURS}h]", f"[{HOURS + 1}h]")
        return server.query(expression, time=end + 240)

    name = "memwatch_operation_name"
    count = over_all_runs(runs, "memwatch_operation_count_total", sum, name)
    seconds = over_all_runs(runs, "memwatch_operation_time_seconds_total", sum, name)
    peaks = over_all_runs(runs, "memwatch_operation_memory_peak_max_bytes", max, name)
    assert len(count) == 4
    (closed,) = whole("Closed/A")
    assert float(closed["value"][1]) == sum(count.values())
    (failed,) = whole("Failed/A")
    ended = over_all_runs(runs, "memwatch_operation_count_total", sum, "memwatch_operation_status")
    assert float(failed["value"][1]) == ended.get(("error",), 0)
    assert by_label(whole("All operations/C"), name) == count
    mean = {key: pytest.approx(total / count[key]) for key, total in seconds.items()}
    assert by_label(whole("All operations/B"), name) == mean
    # Recorded each half a minute, and of a run that ended for ten minutes more.
    assert by_label(whole("Largest peaks/A"), name) == {
        key: pytest.approx(peak) for key, peak in peaks.items()
    }
    versions = by_label(whole("Mean duration by version/A"), name, "service_version")
    assert versions == {(*key, "1.0"): one for key, one in mean.items()}
    assert by_label(whole("Largest peak by version/A"), name, "service_version") == {
        (*key, "1.0"): pytest.approx(peak) for key, peak in peaks.items()
    }


def test_open_operations_are_those_of_active_runs(simulated):
    _, runs, end = simulated
    middle = end - 3600
    going_on = [run for run in runs if run.start <= middle <= run.start + run.seconds]
    (opened,) = one(simulated, "memwatch-operations/Open now/A", at=middle)
    assert 0 < float(opened["value"][1]) <= len(going_on) + 3, "a run here has one open at a time"


def test_every_rule_records(simulated):
    server, _, end = simulated
    rules = records()
    assert rules
    for rule in rules:
        assert server.query(f"last_over_time({rule.name}[{HOURS}h])", time=end), rule.name


def test_no_curve_has_a_line_for_each_run(simulated):
    server, _, end = simulated
    for where, target in asked():
        if (
            where.startswith(
                (
                    "memwatch-fleet/",
                    "memwatch-ci/",
                    "memwatch-cost/",
                    "memwatch-groups/",
                    "memwatch-operations/",
                )
            )
            and "$run" not in target["expr"]
            and not target["instant"]
        ):
            found = server.query(f"count(({filled(target['expr'])}))", time=end - 3600)
            assert not found or float(found[0]["value"][1]) <= 40, where
    assert "topk(200" in json.dumps(boards()["memwatch-fleet.json"])

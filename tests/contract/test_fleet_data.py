"""Every query of every dashboard has an answer from a Prometheus that has several hundred simulated runs."""

from __future__ import annotations

import json
import re
import time

import pytest

from dashboards.boards import boards
from dashboards.records import records
from tests.support import fleet
from tests.support.monitored import values

RUNS = 240
HOURS = 2

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
    few = fleet.record(directory / "default", ("train", "tests", "broken", "large"))
    # All metrics, for what a dashboard shows only with these.
    everything = fleet.record(directory / "all", ("gpu",), options=fleet.BEFORE)
    end = time.time() // 7200 * 7200 - 60
    runs = fleet.simulated([*few, *everything], RUNS, end, HOURS * 3600, (120, 480))
    server = fleet.served(runs, directory, 30)
    yield server, runs, end
    server.close()


def filled(expression):
    for name, value in (("$__rate_interval", "2m"), ("$__range", f"{HOURS}h")):
        expression = expression.replace(name, value)
    expression = re.sub(r"\$(cluster|namespace)\b", ".*", expression)
    expression = expression.replace("$main", "main|master").replace("$price", "2")
    return re.sub(r"\$\w+", ".+", expression)


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
    at = simulated[2] - 1200  # while some go on
    empty = [
        where
        for where, target in asked()
        if not any(re.search(name, target["expr"]) for name in ABSENT) and not answer(simulated, target, at)
    ]
    assert not empty, "\n".join(empty)


def test_every_variable_has_choices(simulated):
    server, _, end = simulated
    for name, board in boards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(
                    r"label_values\((.+), (\w+)\)", variable["query"]["query"]
                ).groups()
                found = server.query(
                    f"count by ({label}) (last_over_time({filled(selector)}[{HOURS}h]))", time=end
                )
                assert [one for one in found if one["metric"].get(label)], f"{name}: {variable['name']}"


def one(simulated, title, **more):
    (target,) = [target for where, target in asked() if where == title]
    return answer(simulated, target, **more)


def test_what_is_told_of_the_fleet_is_what_was_simulated(simulated):
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
    variation = one(simulated, "memwatch-ci/Varies most by itself/A")
    assert all(0 <= float(series["value"][1]) < 0.1 for series in variation)


def test_gib_hours_are_limits_times_durations(simulated):
    _, runs, _ = simulated
    limits = {"train": 0.5, "tests": 0.25, "large": 200 / 1024}
    (asked_for,) = one(simulated, "memwatch-cost/GiB-hours asked for/A")
    exact = sum(limits.get(run.of.service, 0) * run.seconds / 3600 for run in runs)
    # Minutes that are looked at stand for those that are not.
    assert float(asked_for["value"][1]) == pytest.approx(exact, rel=0.1)
    (price,) = one(simulated, "memwatch-cost/Price of what was never needed/A")
    (unneeded,) = one(simulated, "memwatch-cost/GiB-hours never needed/A")
    assert float(price["value"][1]) == pytest.approx(2 * float(unneeded["value"][1]))
    assert 0 < float(unneeded["value"][1]) < float(asked_for["value"][1])


def test_groups_are_those_that_were_simulated(simulated):
    _, runs, end = simulated
    middle = end - 3600
    active = sum(run.start <= middle <= run.start + run.seconds for run in runs)
    (ranks,) = one(simulated, "memwatch-groups/Ranks active/A", at=middle)
    assert abs(float(ranks["value"][1]) - active) <= 3, "recorded each half a minute"
    listed = one(simulated, "memwatch-groups/Ranks that need most/A")
    assert {series["metric"]["memwatch_group_id"] for series in listed} == {f"group-{n}" for n in range(7)}
    assert len(
        {(s["metric"]["memwatch_group_id"], s["metric"]["memwatch_group_rank"]) for s in listed}
    ) == len(listed)


def test_every_rule_records(simulated):
    server, _, end = simulated
    for rule in records():
        assert server.query(f"last_over_time({rule.name}[{HOURS}h])", time=end), rule.name


def test_no_curve_has_a_line_for_each_run(simulated):
    server, _, end = simulated
    for where, target in asked():
        if (
            where.startswith(("memwatch-fleet/", "memwatch-ci/", "memwatch-cost/", "memwatch-groups/"))
            and not target["instant"]
        ):
            found = server.query(f"count(({filled(target['expr'])}))", time=end - 3600)
            assert not found or float(found[0]["value"][1]) <= 40, where
    assert "topk(200" in json.dumps(boards()["memwatch-fleet.json"])

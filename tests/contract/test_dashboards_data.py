"""Every expression of every panel, variable, alert and rule has an answer from a Prometheus that scraped real runs."""

from __future__ import annotations

import io
import json
import re

import pytest

from dashboards import previews
from dashboards.boards import boards
from dashboards.promql import filled, names_in
from dashboards.records import records
from dashboards.rules import alerts
from otel_memwatch.catalog import METRICS
from otel_memwatch.monitor.telemetry import Telemetry, TelemetryInputs
from otel_memwatch.reports import render
from otel_memwatch.run import load
from tests.support.monitored import Monitored, backfilled, values
from tests.support.peers import Prometheus, free_port
from tests.support.telemetry_run import (
    Program,
    all_columns,
    finished,
    health,
    operation,
    peaks,
    run_info,
    snapshot,
)

ABSENT = {
    "memwatch.cgroup.pressure.time": "version 1 of control groups has no pressure, nor has a kernel without PSI",
    "memwatch.system.pressure.time": "a kernel without PSI has none",
    "memwatch.tree.gpu.time": "only open GPU drivers count it",
    "memwatch.tree.gpu.memory.system": "only open GPU drivers tell it",
}
"""Metrics that the runs here need not have, and why. Their expressions are asked of made-up values instead."""


def fill(expression):
    """The expression as Grafana sends it with everything chosen."""
    expression = filled(expression, "60s", "6s")
    assert "$" not in expression, expression
    return expression


def panel_expressions():
    for name, board in boards().items():
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                title = f"{name.removesuffix('.json')}/{panel['title']}/{target['refId']}"
                yield pytest.param(target["expr"], id=title)


def annotation_expressions():
    for name, board in boards().items():
        for annotation in board["annotations"]["list"]:
            yield pytest.param(annotation["expr"], id=f"{name.removesuffix('.json')}/{annotation['name']}")


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    made = Monitored(tmp_path_factory.mktemp("monitored"))
    try:
        made.run_all()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A Prometheus that scraped a run with made-up values of every metric of the catalogue."""
    columns = all_columns()
    port = free_port()
    info = run_info(
        resource={
            "service.name": "train",
            "service.instance.id": "a",
            "telemetry.distro.name": "otel-memwatch",
        }
    )
    moments = iter(range(1000, 10**6, 1000))
    parts = TelemetryInputs(
        run=info, columns=columns, latest=lambda: snapshot(columns, next(moments)), health=health, peaks=peaks,
        ticks=lambda: (50, 1), follow=Program([operation()], ["Load"]).follow,
    )  # fmt: skip
    chosen = {"metrics": "all", "operation_metrics": "histograms"}
    telemetry = Telemetry({"prometheus": f"127.0.0.1:{port}", **chosen}, parts)
    assert telemetry.wait_until_open(60)
    directory = tmp_path_factory.mktemp("everything")
    server = Prometheus(directory / "prometheus", [f"127.0.0.1:{port}"])
    try:
        server.wait(lambda: server.query("count_over_time(memwatch_run_active[1m]) > 3"))
        telemetry.finish(finished(info, exit_code=0))
        server.wait(lambda: server.query("memwatch_run_exit_code"))
        yield server
    finally:
        server.close()
        telemetry.close()


def absent(expression):
    """Reasons for which an expression may have no answer here."""
    return [ABSENT[name] for name in names_in(expression) if name in ABSENT]


OF_A_FLEET = ("memwatch-ci/", "memwatch-cost/", "memwatch-fleet/", "memwatch-groups/")
"""Three runs of half a minute are no fleet: these are asked of several hundred in test_fleet_data.py."""


@pytest.mark.parametrize("expression", [p for p in panel_expressions() if not p.id.startswith(OF_A_FLEET)])
def test_a_panel_has_data(monitored, expression):
    values = monitored.values(fill(expression))
    assert values or absent(expression)


@pytest.mark.parametrize("expression", [p for p in panel_expressions() if absent(p.values[0])])
def test_a_panel_that_needs_other_hardware_has_data_where_there_is_some(everything, expression):
    assert everything.query(fill(expression))


def test_reasons_are_for_metrics_of_the_catalogue():
    assert set(ABSENT) <= set(METRICS)


@pytest.mark.parametrize("expression", list(annotation_expressions()))
def test_annotations_have_their_moments(monitored, expression):
    assert monitored.values(fill(expression))


@pytest.mark.parametrize("name", list(boards()))
def test_variables_have_choices(monitored, name):
    asked = [variable for variable in boards()[name]["templating"]["list"] if variable["type"] == "query"]
    assert asked
    for variable in asked:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        choices = monitored.label_values(fill(match[1]), match[2])
        # Labels that a scrape of one machine has not; series of branches are asked for in test_fleet_data.py.
        assert choices or variable["name"] in ("cluster", "namespace", "branch"), variable["name"]


def test_what_variables_offer_is_what_there_is(monitored):
    assert monitored.label_values("memwatch_run_active", "job") == ["demo", "gpu", "oom"]
    runs = 'target_info{telemetry_distro_name="otel-memwatch"}'
    assert monitored.label_values(runs, "instance") == ["demo-1", "gpu-1", "oom-1"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_the_measure_of_an_alert_has_values(monitored, alert):
    assert monitored.values(alert.probe)


def test_the_kill_is_reported_in_words_that_help(monitored):
    (alert,) = monitored.killed
    assert alert["state"] == "firing"
    assert alert["annotations"]["summary"] == "oom (oom-1): the OOM killer killed a process."


def test_no_alert_has_a_broken_template(monitored):
    fired = [one for alert in alerts() for one in monitored.alerts(alert.name)] + monitored.killed
    assert fired
    for one in fired:
        assert "<error" not in json.dumps(one["annotations"])


def test_figures_of_panels_are_those_of_the_runs(monitored):
    """Not only some data, but the right data."""
    document = json.loads((monitored.directory / "demo" / "run.json").read_text())
    expressions = {p.id: p.values[0] for p in panel_expressions()}
    needed = monitored.values(fill(expressions["memwatch-run/Memory needed/A"]).replace('".+"', '"demo.*"'))
    assert needed[-1] == document["peaks"]["tree"]["bytes"], "an estimate while it runs may be larger"
    kills = monitored.values(fill(expressions["memwatch-fleet/OOM kills/A"]))
    assert kills[-1] == 1
    closed = monitored.values(fill(expressions["memwatch-operations/Closed/A"]))
    # Of evaluations that a busy machine skips nothing is counted; test_fleet_data.py has the exact figures.
    assert 0 < max(closed) <= 10
    largest = monitored.values(fill(expressions["memwatch-operations/Largest peaks/A"]))
    assert max(largest) == max(monitored.values("memwatch_operation_memory_peak_max_bytes"))
    share = monitored.values(fill(expressions["memwatch-gpu/Fullest/A"]))
    assert max(share) == 79 / 80


@pytest.mark.parametrize("name", list(boards()))
def test_a_preview_shows_the_panels_and_says_that_it_is_one(monitored, name):
    asked = previews.PreviewSource(monitored.server.url, monitored.begin, monitored.end, "demo-1")
    figure = previews.draw(boards()[name], asked)
    texts = [text.get_text() for text in figure.texts]
    assert "a preview, drawn with matplotlib" in texts[0]
    shown = [p for p in boards()[name]["panels"] if p["gridPos"]["y"] + p["gridPos"]["h"] <= previews.TALLEST]
    kinds = [panel for panel in shown if panel["type"] != "row"]
    assert len(figure.axes) == len(kinds)
    assert {panel["title"] for panel in kinds} <= set(texts)
    assert sum(
        bool(axes.lines or axes.patches or axes.texts or axes.tables or axes.images) for axes in figure.axes
    ) == len(kinds)


@pytest.mark.parametrize("back", [0.4, 86_400.0])
def test_a_preview_of_one_moment_or_of_none_is_drawn(monitored, back):
    """One point is a column of a heatmap's own width, and a range without data has words for it."""
    end = monitored.end if back < 1 else monitored.end - back
    asked = previews.PreviewSource(monitored.server.url, end - 0.4, end, "demo-1")
    figure = previews.draw(boards()["memwatch-operations.json"], asked)
    assert all(axes.images or axes.texts or axes.lines or axes.tables or axes.patches for axes in figure.axes)


# -- recorded runs that come later


@pytest.fixture(scope="module")
def recorded_later(monitored, tmp_path_factory):
    """The same runs from their records; GPUs by the names that OTLP makes."""
    texts = []
    for name in ("demo", "gpu"):
        out = io.BytesIO()
        render("openmetrics", load(monitored.directory / name), out)
        text = out.getvalue().decode()
        texts.append(re.sub(r"\b(hw_gpu_utilization|memwatch_gpu_memory_utilization)\b", r"\1_ratio", text))
    server = backfilled(tmp_path_factory.mktemp("later"), texts)
    yield lambda expression: values(server, expression, monitored.begin, monitored.end)
    server.close()


@pytest.mark.parametrize(
    "panel",
    [
        "memwatch-run/Memory needed/A",
        "memwatch-run/State/A",
        "memwatch-run/Memory of the whole tree/A",
        "memwatch-run/CPU/A",
        "memwatch-run/GPU busy/A",
        "memwatch-fleet/Runs seen/A",
        "memwatch-fleet/Runs/A",
        "memwatch-gpu/Busy/A",
        "memwatch-gpu/Memory bus busy/A",
        "memwatch-gpu/Idle while held now/A",
        "memwatch-gpu/Devices of runs/A",
    ],
)
def test_recorded_runs_are_there_too_and_under_either_name(recorded_later, panel):
    expression = next(p.values[0] for p in panel_expressions() if p.id == panel)
    assert recorded_later(fill(expression))


def test_a_week_of_real_runs_and_a_regression(monitored, tmp_path):
    """The alert's expression, over the same run recorded five times a day apart, the last with half as much again."""
    out = io.BytesIO()
    render("openmetrics", load(monitored.directory / "demo"), out)
    texts = []
    for days in range(5):
        lines = []
        for line in out.getvalue().decode().splitlines():
            head, _, rest = line.rpartition(" ")
            if line.startswith("#"):
                lines.append(line)
            elif line.startswith("memwatch_tree_memory_peak_bytes"):
                series, value = head.rsplit(" ", 1)
                lines.append(
                    f"{series} {int(int(value) * (1 if days else 1.5))} {float(rest) - 86400 * days:.3f}"
                )
        texts.append("\n".join(lines) + "\n")
    server = backfilled(tmp_path, texts)
    peak = next(
        rule.expression for rule in records() if rule.name == "job:memwatch_tree_memory_peak_bytes:max"
    )
    (alert,) = (one for one in alerts() if one.name == "MemwatchPeakRegression")
    # What is recorded as it comes is here computed when it is asked for.
    expression = re.sub(r"job:\w+:max\[(\w+)\]", rf"({peak})[\1:1m]", alert.expression)
    try:
        assert server.query(expression, time=monitored.end + 120)
        assert not server.query(expression, time=monitored.end - 86400 + 120)
    finally:
        server.close()

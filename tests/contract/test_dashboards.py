"""Dashboards are generated, complete, and keep the rules of Grafana's dashboard-linter; exclusions have reasons."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from dashboards.boards import boards
from dashboards.generate import documents, main, project_runbook
from dashboards.promql import series
from dashboards.records import metrics_in, records
from otel_memwatch.catalog import METRICS, Instrument, prometheus_names
from tests.support.programs import need

ROOT = Path(__file__).parents[2]
BOARDS = boards()

EXCLUDED = {
    "template-job-rule": "a job is a service here, and the variable is called so",
    "template-instance-rule": "an instance is a run here, and the variable is called so",
    "target-job-rule": "matched with $service",
    "target-instance-rule": "matched with $run",
}
"""Rules of dashboard-linter that are kept in another way: see test_every_query_is_limited_to_the_chosen_service_and_run."""

RUN_ONLY = {"memwatch-run.json": "it shows one run: several would be drawn over each other"}
"""Dashboards whose run variable takes one value only (template-instance-rule asks for several)."""

TOTALS = "counters of a run begin with it at 0: the last value is its total, and a short run has no increase"
OF_A_FLEET = ("memwatch-fleet.json", "memwatch-ci.json", "memwatch-cost.json", "memwatch-groups.json")
"""Dashboards of many runs: what they show is chosen by service, because users do not choose one run of thousands."""

OF_SERVICES_AND_RUNS = ("memwatch-operations.json",)
"""Dashboards of many runs that have panels of chosen ones as well: these have to be named, all of them cannot be chosen."""

UNITS = {
    "bytes", "Bps", "s", "short", "percentunit", "ops", "watt", "joule", "celsius",
}  # fmt: skip
"""Those that are used, all known to Grafana."""


def panels(kinds=()):
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            if panel["type"] != "row" and (not kinds or panel["type"] in kinds):
                yield pytest.param(panel, id=f"{name.removesuffix('.json')}/{panel['title']}")


ALL = list(panels())


def expressions(board):
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def targets():
    for parameter in ALL:
        for target in parameter.values[0]["targets"]:
            yield pytest.param(target["expr"], id=f"{parameter.id}/{target['refId']}")


EXPRESSIONS = list(targets())
every_panel = pytest.mark.parametrize("panel", ALL)
every_expression = pytest.mark.parametrize("expression", EXPRESSIONS)
every_board = pytest.mark.parametrize("name", list(BOARDS))


def test_what_is_committed_is_what_is_generated():
    for path, text in documents(project_runbook()).items():
        assert path.read_text() == text, f"{path.name}: run python -m dashboards.generate"
    assert main(["--check"]) == 0


def test_nothing_else_lies_among_the_generated_files():
    for directory in (ROOT / "dashboards" / "grafana", ROOT / "dashboards" / "prometheus"):
        assert set(directory.iterdir()) <= set(documents(project_runbook()))


def test_check_notices_a_difference(monkeypatch, capsys):
    import dashboards.generate as module

    path = ROOT / "dashboards" / "grafana" / "memwatch-run.json"
    monkeypatch.setattr(module, "documents", lambda _: {path: "{}"})
    assert main(["--check"]) == 1
    assert "memwatch-run.json" in capsys.readouterr().err
    assert path.read_text() != "{}"


def test_alerts_lead_to_an_absolute_address_which_one_can_choose(tmp_path, monkeypatch, capsys):
    import yaml

    import dashboards.generate as module

    def links(runbook):
        (text,) = (text for path, text in documents(runbook).items() if path.name == "memwatch-alerts.yml")
        return {rule["annotations"]["runbook_url"] for rule in yaml.safe_load(text)["groups"][0]["rules"]}

    assert all(
        re.fullmatch(r"https://\S+/dashboards/runbook\.md#memwatch\w+", one)
        for one in links(project_runbook())
    )
    written = tmp_path / "alerts.yml"
    monkeypatch.setattr(module, "HERE", tmp_path.parent)
    monkeypatch.setattr(module, "documents", lambda runbook: {written: "\n".join(links(runbook))})
    assert main(["--runbook-url", "https://wiki.example.org/memwatch"]) == 0
    assert "https://wiki.example.org/memwatch#memwatchoomkill" in written.read_text()
    with pytest.raises(SystemExit):
        main(["--runbook-url", "dashboards/runbook.md"])
    assert "leads nowhere" in capsys.readouterr().err


# -- the rules of dashboard-linter


@every_board
def test_template_datasource_rule(name):
    first = BOARDS[name]["templating"]["list"][0]
    assert (first["type"], first["name"], first["label"], first["query"]) == (
        "datasource", "datasource", "Data source", "prometheus",
    )  # fmt: skip


@every_board
def test_template_variables_reload_on_time_change_and_have_labels(name):
    queries = [one for one in BOARDS[name]["templating"]["list"] if one["type"] == "query"]
    for variable in queries:
        assert variable["refresh"] == 2
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["label"]
        several = not (variable["name"] == "run" and name in RUN_ONLY)
        assert variable["multi"] is several
        # A series without a cluster or namespace is one of all.
        everything = ".*" if variable["name"] in ("cluster", "namespace") else ".+"
        all_of_them = several and not (variable["name"] == "run" and name in OF_SERVICES_AND_RUNS)
        assert variable["includeAll"] is all_of_them
        assert variable.get("allValue") == (everything if all_of_them else None)
    asked = {"cluster", "namespace", "service"} | (set() if name in OF_A_FLEET else {"host", "run"})
    assert asked <= {one["name"] for one in queries}


@every_board
def test_variables_use_only_those_before_them(name):
    known = set()
    variables = BOARDS[name]["templating"]["list"]
    assert variables
    for variable in variables:
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(variable.get("query", ""))))
        assert used <= known
        known.add(variable["name"])


@every_board
def test_panels_use_only_variables_that_there_are(name):
    known = {variable["name"] for variable in BOARDS[name]["templating"]["list"]}
    queries = expressions(BOARDS[name])
    assert queries
    for query in queries:
        used = set(re.findall(r"\$\{?(\w+)", query))
        assert used <= known | {"__rate_interval", "__range"}


@every_board
def test_uneditable_dashboard_rule(name):
    assert BOARDS[name]["editable"] is False


@every_panel
def test_panel_datasource_rule(panel):
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@every_panel
def test_panel_title_description_rule(panel):
    assert panel["title"]
    assert len(panel["description"]) > 40


@every_panel
def test_panel_units_rule(panel):
    field = panel["fieldConfig"]
    units = [field["defaults"].get("unit")]
    if panel["type"] == "table":
        units = [p["value"] for o in field["overrides"] for p in o["properties"] if p["id"] == "unit"]
    assert units
    assert set(units) <= UNITS


@every_panel
def test_panel_no_targets_rule(panel):
    assert panel["targets"]


def test_target_rate_interval_rule():
    """rate over a fixed window draws nothing where the window is shorter than the scrape interval."""
    found = [
        (window, query)
        for board in BOARDS.values()
        for query in expressions(board)
        for window in re.findall(r"\b(?:rate|irate)\([^\[]*\[([^\]]+)\]", query)
    ]
    assert found
    assert [query for window, query in found if window != "$__rate_interval"] == []


def test_target_counter_agg_rule():
    """A counter is only looked at through rate or increase; whole-run totals are its last value (TOTALS)."""
    names = [prometheus_names(row)[0] for row in METRICS.values() if row.instrument is Instrument.COUNTER]
    befores = [
        query[: found.start()]
        for board in BOARDS.values()
        for query in expressions(board)
        for found in re.finditer(rf"\b(?:{'|'.join(names)})\b", query)
    ]
    assert befores
    for before in befores:
        assert before.endswith(("rate(", "increase(", "last_over_time(")), TOTALS


@every_board
def test_every_query_is_limited_to_the_chosen_service_and_run(name):
    """Stands for target-job-rule and target-instance-rule."""
    recorded = {rule.name for rule in records()}
    selectors = [
        found for query in expressions(BOARDS[name]) for found in re.findall(r"([\w:]*)\{([^}]*)\}", query)
    ]
    assert selectors
    for metric, selector in selectors:
        assert 'job=~"$service"' in selector
        of_a_service = name in OF_A_FLEET or (name in OF_SERVICES_AND_RUNS and metric in recorded)
        assert ('instance=~"$run"' in selector) is not of_a_service
        assert 'cluster=~"$cluster",namespace=~"$namespace"' in selector


@pytest.mark.parametrize("name", OF_A_FLEET)
def test_curves_of_a_fleet_are_of_recorded_series(name):
    """One for each service: those of single runs would be read at each point of the curve."""
    recorded = {rule.name for rule in records()}
    curves = [panel for panel in BOARDS[name]["panels"] if panel["type"] == "timeseries"]
    assert curves
    for panel in curves:
        for target in panel["targets"]:
            assert set(re.findall(r"([a-zA-Z_:][\w:]*)\{", target["expr"])) <= recorded
    for one in BOARDS[name]["annotations"]["list"]:
        assert set(re.findall(r"([a-zA-Z_:][\w:]*)\{", one["expr"])) <= recorded


@pytest.mark.parametrize("name", OF_SERVICES_AND_RUNS)
def test_only_what_comes_with_another_option_is_read_of_runs(name):
    """All that runs send by default is recorded for services: ten thousand runs cost such a dashboard no more than their services."""
    of_runs = {
        metric
        for panel in BOARDS[name]["panels"]
        for target in panel.get("targets", ())
        for metric in metrics_in(target["expr"])
        if 'instance=~"$run"' in target["expr"]
    }
    assert of_runs
    assert all(METRICS[metric].instrument is Instrument.HISTOGRAM for metric in of_runs)


def test_what_is_of_a_device_is_counted_once_however_many_runs_see_it():
    """Only what runs hold themselves is summed over runs, or what is one value for each device already."""
    of_runs = [
        name
        for query in expressions(BOARDS["memwatch-gpu.json"])
        for name in re.findall(r"sum(?: by \([^)]*\))? \((?:\w+\()*(\w+)\{", query.replace("(max by", ""))
    ]
    assert of_runs
    assert [name for name in of_runs if not name.startswith("memwatch_tree_")] == []


def test_exclusions_have_reasons():
    assert all(len(reason) > 10 for reason in (*EXCLUDED.values(), *RUN_ONLY.values(), TOTALS))


# -- our own


@every_expression
def test_metrics_are_those_of_the_catalogue(expression):
    """What stands before a selector is a metric, and known."""
    for name in re.findall(r"([a-zA-Z_:][\w:]*)\{", expression):
        assert name == "target_info" or metrics_in(name), name
    assert metrics_in(expression)


def test_a_gauge_of_unit_1_is_asked_for_by_both_of_its_names():
    asked = [
        (query, names)
        for board in BOARDS.values()
        for query in expressions(board)
        for names in map(prometheus_names, METRICS.values())
        if len(names) == 2 and re.search(rf"\b{names[0]}\b", query)
    ]
    assert asked
    for query, names in asked:
        assert query.count(names[0] + "{") == query.count(names[1] + "{") > 0, query


def test_a_range_over_a_gauge_of_unit_1_is_one_selector_of_both_names():
    text = series("hw.gpu.utilization", scope=(), window="5m")
    assert text == '{__name__=~"hw_gpu_utilization|hw_gpu_utilization_ratio"}[5m]'


@every_panel
def test_absence_is_not_drawn_as_calm(panel):
    """No zero from nothing, and words that say that nothing is known."""
    for target in panel["targets"]:
        assert "vector(" not in target["expr"]
        assert "absent(" not in target["expr"]
    words = panel["fieldConfig"]["defaults"]["noValue"]
    assert re.search(r"\bno\b|\bnot\b|unknown", words)
    assert panel["fieldConfig"]["defaults"].get("custom", {}).get("spanNulls", False) is False


@every_panel
def test_descriptions_say_what_each_metric_is(panel):
    shown = {name for target in panel["targets"] for name in metrics_in(target["expr"])}
    assert shown
    for name in shown:
        assert METRICS[name].description in panel["description"]


def noted():
    """Each panel with each metric of its that misleads at times."""
    for parameter in ALL:
        (panel,) = parameter.values
        drawn = {name for target in panel["targets"] for name in metrics_in(target["expr"])}
        for name in sorted(drawn):
            if METRICS[name].note:
                yield pytest.param(panel, METRICS[name].note, id=f"{parameter.id}/{name}")


NOTED = list(noted())


@pytest.mark.parametrize(("panel", "note"), NOTED)
def test_descriptions_say_when_a_metric_misleads(panel, note):
    assert note in panel["description"]


def test_metrics_that_mislead_are_drawn():
    assert len(NOTED) >= 20, "else the test above has next to nothing to check"


@every_board
def test_panels_do_not_overlap_and_fill_the_width(name):
    taken = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    identities = [panel["id"] for panel in BOARDS[name]["panels"]]
    assert len(identities) == len(set(identities))


def test_dashboards_are_distinguished():
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    assert all(board["tags"] == ["otel-memwatch"] for board in BOARDS.values())


def test_links_lead_to_dashboards_that_there_are():
    uids = {board["uid"] for board in BOARDS.values()}
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(BOARDS)))
    assert linked
    assert linked <= uids


def test_the_link_to_traces_is_a_query_once_variables_are_filled_in():
    (link,) = (one for one in BOARDS["memwatch-run.json"]["links"] if one["type"] == "link")
    from urllib.parse import parse_qs, urlsplit

    url = (
        link["url"]
        .replace("${traces}", "tempo")
        .replace("${run}", "a-1")
        .replace("${__from}", "1")
        .replace("${__to}", "2")
    )
    panes = json.loads(parse_qs(urlsplit(url).query)["panes"][0])
    assert panes["traces"]["queries"][0]["query"] == (
        '{ resource.service.instance.id = "a-1" || resource.k8s.pod.name = "a-1" }'
    )


@every_board
def test_the_builders_of_grafana_understand_it(name):
    """An independent model of the JSON: what it does not know would be gone after a round."""
    if sys.version_info < (3, 11):
        pytest.skip("grafana-foundation-sdk needs Python 3.11")
    models = need("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    board = json.loads(json.dumps(BOARDS[name]))
    again = json.loads(JSONEncoder().encode(models.Dashboard.from_json(board)))
    assert [p["title"] for p in again["panels"]] == [p["title"] for p in board["panels"]]
    for before, after in zip(board["panels"], again["panels"], strict=True):
        assert lost(before, after) == []


def lost(before, after, where=""):
    """Places whose value is not in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            place
            for key, value in before.items()
            for place in (
                lost(value, after[key], f"{where}.{key}")
                if key in after
                else [f"{where}.{key}"] * bool(value)
            )
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            p for i, (b, a) in enumerate(zip(before, after, strict=True)) for p in lost(b, a, f"{where}[{i}]")
        ]
    return [] if before == after else [where]

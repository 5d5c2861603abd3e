"""Alerts and recording rules: promtool takes them, scenarios fire and stay silent, and each leads to what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards import thresholds
from dashboards.promql import names_in
from dashboards.records import records
from dashboards.rules import alerting_document, alerts, recording_document
from tests.support.peers import needed

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards" / "prometheus"
SCENARIOS = ROOT / "tests" / "data" / "alerts"
NAMES = [alert.name for alert in alerts()]


def promtool(*arguments, cwd=None):
    return subprocess.run(
        [needed("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=cwd
    )


def test_promtool_takes_the_files():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *sorted(RULES.glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


def staged(directory, scenario, change=lambda text: text):
    """Rules without their annotations, so words can change, beside the scenario; of recorded series those that are looked at."""
    text = (SCENARIOS / scenario).read_text()
    interval = yaml.safe_load(text)["evaluation_interval"]
    looked_at = " ".join((text, *(alert.expression for alert in alerts())))
    for path in RULES.glob("*.yml"):
        document = yaml.safe_load(path.read_text())
        for group in document["groups"]:
            group["interval"] = interval
            group["rules"] = [rule for rule in group["rules"] if rule.get("record", "") in looked_at]
            for rule in group["rules"]:
                rule.pop("annotations", None)
        (directory / path.name).write_text(change(yaml.safe_dump(document, width=10_000)))
    shutil.copy(SCENARIOS / scenario, directory)
    return directory


@pytest.mark.parametrize("scenario", sorted(path.name for path in SCENARIOS.glob("*.yml")))
def test_scenarios(scenario, tmp_path):
    done = promtool("test", "rules", scenario, cwd=staged(tmp_path, scenario))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_scenario_that_fires_and_one_that_stays_silent(name):
    cases = [
        case
        for path in SCENARIOS.glob("*.yml")
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == name
    ]
    assert [case for case in cases if case["exp_alerts"]]
    assert [case for case in cases if not case["exp_alerts"]]


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in NAMES[1:])]
)
def test_scenarios_would_notice_a_rule_that_never_fires(name, tmp_path):
    def broken(text):
        document = yaml.safe_load(text)
        for group in document["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == name:
                    rule["expr"] = f"({rule['expr']}) and vector(1) < 0"
        return yaml.safe_dump(document, width=10_000)

    files = [path.name for path in SCENARIOS.glob("*.yml") if f"alertname: {name}" in path.read_text()]
    assert any(
        promtool("test", "rules", file, cwd=staged(tmp_path, file, broken)).returncode for file in files
    )


@pytest.mark.parametrize("alert", alerts(), ids=NAMES)
def test_an_alert_is_complete(alert):
    assert re.fullmatch(r"Memwatch[A-Z]\w+", alert.name)
    assert alert.severity in {"critical", "warning", "info"}
    assert alert.summary.endswith(".")
    assert "{{ $labels.job }}" in alert.summary
    assert len(alert.description) > 60


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_its_heading_in_the_runbook(name):
    text = (ROOT / "dashboards" / "runbook.md").read_text()
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, "no heading"
    for part in ("**Meaning.**", "**Check.**", "**Action.**"):
        assert part in section[1], part


def test_the_runbook_has_no_headings_of_alerts_that_are_gone():
    headings = re.findall(
        r"^## (Memwatch\w+)$", (ROOT / "dashboards" / "runbook.md").read_text(), re.MULTILINE
    )
    assert headings == NAMES


def test_recorded_names_have_level_metric_and_operation():
    rules = records()
    assert rules
    for rule in rules:
        assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9]+", rule.name), rule.name


def test_rules_name_only_metrics_that_there_are():
    """Every word that looks like a metric is one of the catalogue, or recorded."""
    recorded = {rule.name for rule in records()}
    named = set()
    for rule in (*records(), *alerts()):
        outside = re.sub(r'"[^"]*"|\{[^}]*\}', "", rule.expression)
        outside = re.sub(r"\b(by|on|group_left) \([^)]*\)", "", outside)
        words = set(re.findall(r"[a-z_][\w:]*_[\w:]*(?!\w)(?! ?\()", outside)) - recorded
        words -= {"min_over_time", "max_over_time", "last_over_time", "target_info", "label_replace"}
        for word in words:
            assert names_in(word), f"{rule.name}: {word}"
        named |= words
    assert named


def test_numbers_come_from_the_thresholds():
    """A comparison with anything but 0, 1 and 137 has its number from thresholds.py."""
    numbers = {f"{value:g}" for value in vars(thresholds).values() if isinstance(value, (int, float))}
    compared = [
        (alert.name, number)
        for alert in alerts()
        for number in re.findall(r"[<>=]=? (?:bool )?(\d[\d.]*)(?![\d.]*[\]\w])", alert.expression)
    ]
    assert {number for _, number in compared} & numbers
    for name, number in compared:
        assert number in numbers | {"0", "1", "137"}, f"{name}: {number}"


def test_documents_have_all_rules():
    listed = [
        rule["alert"]
        for group in alerting_document("https://example.org")["groups"]
        for rule in group["rules"]
    ]
    assert listed == NAMES
    listed = [rule["record"] for group in recording_document()["groups"] for rule in group["rules"]]
    assert listed == [rule.name for rule in records()]

"""What Prometheus gets is what the catalogue says: on the scraped page, in a real server, and by way of OTLP."""

from __future__ import annotations

import re
import subprocess
import urllib.request

import pytest

from otel_memwatch.catalog import METRICS, Instrument, Metric, prometheus_names
from otel_memwatch.monitor.telemetry import Telemetry, TelemetryInputs
from tests.support.peers import Prometheus, needed
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


@pytest.fixture
def served():
    """Telemetry of a run that has every metric of the catalogue."""
    columns = all_columns()
    latest = snapshot(columns)
    info = run_info()
    said = []
    parts = TelemetryInputs(
        run=info, columns=columns, latest=lambda: latest, health=health, ticks=lambda: (50, 1), peaks=peaks,
        say=said.append, follow=Program([operation()], ["Load"]).follow,
    )  # fmt: skip
    everything = {"metrics": "all", "operation_metrics": "histograms"}
    telemetry = Telemetry({"prometheus": "127.0.0.1:0", "textfile": None, **everything}, parts)
    assert telemetry.wait_until_open(60)
    assert telemetry.endpoint, said
    telemetry.finish(finished(info, exit_code=3))
    yield telemetry, columns, latest
    telemetry.close()


def _page(telemetry, **headers):
    request = urllib.request.Request(telemetry.endpoint, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode(), response.headers["Content-Type"]


def _scraped_name(row):
    name = prometheus_names(row)[0]
    return f"{name}_count" if row.instrument is Instrument.HISTOGRAM else name


def _expected(served):
    """The rows that a run without an OTLP exporter has."""
    return [row for row in METRICS.values() if row.name != "memwatch.export.failures"]


def test_the_page_has_every_row_under_its_predicted_name_and_nothing_else(served):
    text, kind = _page(served[0])
    assert kind.startswith("text/plain")
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    del families["target_info"]
    kinds = {
        Instrument.COUNTER: "counter",
        Instrument.UP_DOWN_COUNTER: "gauge",
        Instrument.GAUGE: "gauge",
        Instrument.HISTOGRAM: "histogram",
    }
    assert families == {prometheus_names(row)[0]: kinds[row.instrument] for row in _expected(served)}


def test_values_of_columns_arrive_with_their_attributes(served):
    telemetry, columns, latest = served
    text, _ = _page(telemetry)
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            values[series] = float(value)
    for column, value in zip(columns, latest.values, strict=True):
        if column.metric == "memwatch.process.memory.peak":
            continue  # the final figure stands for the last tick's
        labels = ",".join(f'{key.replace(".", "_")}="{item}"' for key, item in sorted(column.attributes))
        name = prometheus_names(METRICS[column.metric])[0]
        assert values[f"{name}{{{labels}}}" if labels else name] == value
    assert values["memwatch_process_memory_peak_bytes"] == 200 << 20
    assert values["memwatch_tree_memory_peak_bytes"] == 300 << 20
    assert values["memwatch_tree_memory_peak_high_bytes"] == 305 << 20
    assert values["memwatch_run_exit_code"] == 3
    assert values["memwatch_run_active"] == 0


def test_openmetrics_is_served_to_those_who_ask(served):
    text, kind = _page(served[0], Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_promtool_finds_nothing_but_the_conventions_own_suffix(served):
    text, _ = _page(served[0])
    promtool = needed("promtool")
    found = subprocess.run(
        [promtool, "check", "metrics"], input=text.encode(), capture_output=True, timeout=60
    )
    for line in (found.stdout + found.stderr).decode().splitlines():
        # The conventions name process.thread.count and the like, at which this check has always balked.
        assert re.fullmatch(
            r'\w+_count non-histogram and non-summary metrics should not have "_count" suffix', line
        ), line


def test_a_real_prometheus_answers_for_every_row(served, tmp_path):
    telemetry, *_ = served
    server = Prometheus(tmp_path / "prometheus", [telemetry.endpoint.split("/")[2]])
    try:
        server.wait(lambda: server.query("memwatch_run_exit_code"))
        missing = [row.name for row in _expected(served) if not server.query(_scraped_name(row))]
        assert missing == []
        assert float(server.query("memwatch_tree_memory_peak_bytes")[0]["value"][1]) == 300 << 20
        assert server.query("target_info")[0]["metric"]["service_name"] == "train"
        rate = "histogram_quantile(0.5, memwatch_operation_memory_peak_bytes_bucket)"
        assert 128 << 20 <= float(server.query(rate)[0]["value"][1]) <= 256 << 20
    finally:
        server.close()


_UNITS = {"By": "bytes", "s": "seconds", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz"}
_PER = {"s": "second"}


def _translated(row):
    """Name by the rules of prometheus/otlptranslator, with which the Collector and Prometheus 3 name OTLP metrics.

    Debian's Prometheus 2.42 has no OTLP receiver, so the rules stand here for the server.
    """
    tokens = [token for token in re.split(r"[^A-Za-z0-9]+", row.name) if token]
    main, _, per = row.unit.partition("/")
    unit = _UNITS.get(main)
    if unit and unit not in tokens:
        tokens.append(unit)
    if per:
        tokens += ["per", _PER[per]]
    if row.instrument is Instrument.COUNTER:
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if row.unit == "1" and row.instrument is Instrument.GAUGE:
        tokens = [token for token in tokens if token != "ratio"] + ["ratio"]
    return "_".join(tokens)


@pytest.mark.parametrize("row", METRICS.values(), ids=lambda row: row.name)
def test_the_name_by_way_of_otlp_is_among_the_predicted_ones(row):
    assert prometheus_names(row)[-1] == _translated(row)


def test_a_ratio_has_both_of_its_names():
    row = Metric("memwatch.x.utilization", Instrument.GAUGE, "1", "", ())
    assert prometheus_names(row) == ("memwatch_x_utilization", "memwatch_x_utilization_ratio")
    assert prometheus_names(row)[-1] == _translated(row)

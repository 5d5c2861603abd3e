"""The metrics inside an OpenTelemetry program: by code, by `opentelemetry-instrument`, after a fork."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.catalog import METRICS, choose_metrics
from tests.support.otlp_sink import OtlpSink

PROGRAMS = Path(__file__).parents[1] / "programs"
BY_CODE = str(PROGRAMS / "instrumented.py")

PLAIN = "import time; time.sleep(2)"


def test_by_one_line_of_code():
    done = subprocess.run(
        [sys.executable, "-W", "error", BY_CODE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= set(METRICS)


@pytest.mark.parametrize(
    ("requested", "monitored"),
    [
        (None, False),
        pytest.param("none", False, marks=pytest.mark.thorough),
        pytest.param("minimal", False, marks=pytest.mark.thorough),
        pytest.param("default", False, marks=pytest.mark.thorough),
        ("default", True),
    ],
)
def test_by_opentelemetry_instrument_without_a_change_to_the_program(requested, monitored):
    if importlib.util.find_spec("opentelemetry.instrumentation.auto_instrumentation") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("opentelemetry-instrumentation is not installed")
        pytest.skip("opentelemetry-instrumentation is not installed")
    sink = OtlpSink()
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_SERVICE_NAME": "theirs",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }
    environment.pop("OTEL_MEMWATCH_METRICS", None)
    if requested is not None:
        environment["OTEL_MEMWATCH_METRICS"] = requested
    if monitored:
        environment["OTEL_MEMWATCH_RUN_DIR"] = "/nowhere"
    instrument = [
        sys.executable,
        "-c",
        "from opentelemetry.instrumentation.auto_instrumentation import run; run()",
    ]
    done = subprocess.run(
        [*instrument, sys.executable, "-c", PLAIN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    names = {metric.name for _, metric, _ in sink.metrics()}
    sink.close()
    if monitored:
        assert not names & set(METRICS), "the monitor pushes them already"
    elif requested in (None, "none"):
        assert not names & set(METRICS), "installing the package changes no telemetry"
    else:
        assert "memwatch.tree.memory.usage" in names, done.stderr
        assert names & set(METRICS) <= choose_metrics(requested)
        assert sink.defects == []


def test_an_unknown_metric_is_a_warning_in_every_program(caplog, monkeypatch):
    from otel_memwatch.plugins.opentelemetry.instrumentor import RequestedInstrumentor

    monkeypatch.setenv("OTEL_MEMWATCH_METRICS", "nonsense")
    RequestedInstrumentor().instrument(skip_dep_check=True)
    assert "unknown metric or profile 'nonsense'" in caplog.text
    assert not RequestedInstrumentor().is_instrumented_by_opentelemetry


def test_a_failure_is_a_warning(caplog, monkeypatch):
    from otel_memwatch.plugins.opentelemetry.instrumentor import MemwatchInstrumentor

    MemwatchInstrumentor().instrument(period="never")
    assert "otel-memwatch records no metrics in this program" in caplog.text
    assert not MemwatchInstrumentor().is_instrumented_by_opentelemetry

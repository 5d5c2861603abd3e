"""The metrics inside an OpenTelemetry program: by code, by `opentelemetry-instrument`, after a fork."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from otel_memwatch.catalog import METRICS
from tests.support.otlp_sink import OtlpSink

BY_CODE = """
import os, time
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otel_memwatch.plugins.opentelemetry.instrumentor import MemwatchInstrumentor

reader = InMemoryMetricReader()
provider = MeterProvider([reader])
instrumentor = MemwatchInstrumentor()
instrumentor.instrument(meter_provider=provider, period=0.1)
instrumentor.instrument(meter_provider=provider)
assert instrumentor.is_instrumented_by_opentelemetry
block = bytearray(b"x" * (64 << 20)); time.sleep(0.5)

def read():
    data = reader.get_metrics_data()
    if data is None: return {}
    return {m.name: [p.value for p in m.data.data_points] for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}

figures = read()
assert figures["process.memory.usage"][0] >= 64 << 20, figures
assert figures["memwatch.process.memory.peak"][0] >= 64 << 20
assert figures["memwatch.tree.process.count"] == [1]
assert "memwatch.run.active" not in figures
print(" ".join(figures))
pid = os.fork()
if not pid:
    own = read()
    os._exit(0 if not own else 7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a forked child must not report its parent's figures"
instrumentor.uninstrument()
assert "process.memory.usage" not in read()
"""

PLAIN = "import time; time.sleep(2)"


def test_by_one_line_of_code():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BY_CODE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= set(METRICS)


@pytest.mark.parametrize("monitored", [False, True])
def test_by_opentelemetry_instrument_without_a_change_to_the_program(monitored):
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
    else:
        assert {
            "process.memory.usage",
            "memwatch.tree.memory.usage",
            "memwatch.process.memory.peak",
        } <= names, done.stderr
        assert sink.defects == []


def test_a_failure_is_a_warning(caplog, monkeypatch):
    from otel_memwatch.plugins.opentelemetry.instrumentor import MemwatchInstrumentor

    MemwatchInstrumentor().instrument(period="never")
    assert "otel-memwatch measures nothing here" in caplog.text
    assert not MemwatchInstrumentor().is_instrumented_by_opentelemetry

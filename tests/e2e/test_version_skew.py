"""OpenTelemetry's packages pin each other's patch level: whichever was installed last, telemetry goes out, or one exporter says why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutations import LONG
from tests.support.otlp_sink import OtlpSink

SOURCES = Path(os.environ.get("OTEL_MEMWATCH_TEST_SOURCES") or Path(__file__).parents[2])
OURS = (str(SOURCES),)
THEIRS = ("opentelemetry-distro==0.66b0", "opentelemetry-exporter-otlp-proto-http")
"""Older than what a fresh installation of ours brings: installed afterwards, it takes the SDK back."""

PROGRAM = """
from opentelemetry import trace
with trace.get_tracer("x").start_as_current_span("Load"):
    pass
"""


@pytest.mark.skipif(not LONG, reason="it installs two environments: MEMWATCH_LONG=1")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours first", "theirs first"])
def test_instrumentation_is_installed_before_or_after(tmp_path, order):
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    for packages in order:
        install = [place / "bin" / "python", "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, capture_output=True, timeout=900)
    sink = OtlpSink()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE", "PYTHON"))
    }
    job = subprocess.run(
        [
            place / "bin" / "otel-memwatch", "wrap", "--quiet", "--prometheus", "0", "--otlp", sink.url, "--out", tmp_path / "run",
            "--", place / "bin" / "opentelemetry-instrument", "--traces_exporter", "none", "--metrics_exporter", "none",
            "--logs_exporter", "none", place / "bin" / "python", "-c", PROGRAM,
        ],
        env=kept, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    sink.close()
    assert job.returncode == 0, job.stderr
    lines = job.stderr.splitlines()
    assert len(lines) == 1, job.stderr
    told = r"otel-memwatch: (metrics for Prometheus: http://\S+|the endpoint for Prometheus could not be started: .+)"
    assert re.fullmatch(told, lines[0]), lines
    assert {metric.name for _, metric, _ in sink.metrics()} >= {
        "memwatch.tree.memory.peak",
        "memwatch.operation.count",
    }
    assert list(sink.spans())

"""A program whose metrics and spans go to a run directory; with an argument it kills itself before its end."""

from __future__ import annotations

import os
import sys

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_memwatch.in_target.otel.local_exporter import LocalMetricExporter, LocalSpanExporter

resource = Resource({"service.name": "theirs", "process.pid": os.getpid()})
reader = PeriodicExportingMetricReader(LocalMetricExporter(), export_interval_millis=1e6)
meters = MeterProvider([reader], resource)
tracers = TracerProvider(resource=resource)
tracers.add_span_processor(SimpleSpanProcessor(LocalSpanExporter()))
usage = meters.get_meter("x").create_gauge("process.memory.usage", "By")
tracer = tracers.get_tracer("x")
for step in range(3):
    with tracer.start_as_current_span(f"step {step}") as span:
        span.set_attribute("step", step)
        usage.set((step + 1) << 20)
        meters.force_flush()
if len(sys.argv) > 1:
    os.kill(os.getpid(), 9)
meters.shutdown()
tracers.shutdown()

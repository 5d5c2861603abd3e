"""A cell in a program that has configured OpenTelemetry."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.ipython_shell import cell

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("x = bytearray(30 << 20)")
names = [span.name for span in spans.get_finished_spans()]
print(names)
span = spans.get_finished_spans()[-1]
assert span.attributes["memwatch.memory.peak"] > 30 << 20, dict(span.attributes)

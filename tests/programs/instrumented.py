"""The instrumentor in a program's own meter provider: prints the metrics; fails where a forked child has any."""

import os
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_memwatch.plugins.opentelemetry.instrumentor import MemwatchInstrumentor

reader = InMemoryMetricReader()
provider = MeterProvider([reader])
instrumentor = MemwatchInstrumentor()
instrumentor.instrument(meter_provider=provider, period=0.1)
instrumentor.instrument(meter_provider=provider)
assert instrumentor.is_instrumented_by_opentelemetry
block = bytearray(b"x" * (64 << 20))
time.sleep(0.5)


def read():
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        m.name: [p.value for p in m.data.data_points]
        for r in data.resource_metrics
        for s in r.scope_metrics
        for m in s.metrics
    }


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
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, (
    "a forked child must not report its parent's figures"
)
instrumentor.uninstrument()
assert "process.memory.usage" not in read()

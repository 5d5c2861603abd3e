"""Has its spans become operations: nested, failing, ended twice, in threads, in a child."""

from __future__ import annotations

import os
import threading

from marking import blip, operation
from traced import provider, tell, tracer

from otel_memwatch.in_target.otel.span_processor import OperationSpanProcessor

provider.add_span_processor(OperationSpanProcessor())
with tracer.start_as_current_span("outer"):
    blip(70)
    with tracer.start_as_current_span("inner") as inner:
        inner.set_attribute("rows", 3)
        blip(20)
    with operation("ours"):
        blip(5)
try:
    with tracer.start_as_current_span("failing"):
        raise ValueError
except ValueError:
    pass
span = tracer.start_span("ended twice")
span.end()
type(span).end(span)
past = tracer.start_span("ended past us")
type(past).end(past)
threads = [
    threading.Thread(target=lambda: [tracer.start_span("many").end() for _ in range(100)]) for _ in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if os.fork() == 0:
    with tracer.start_as_current_span("child"):
        blip(15)
    os._exit(0)
os.wait()
tell()

"""Has its spans become operations where nothing is recorded."""

from __future__ import annotations

from traced import provider, tracer

from otel_memwatch.in_target.otel.span_processor import OperationSpanProcessor

provider.add_span_processor(OperationSpanProcessor())
with tracer.start_as_current_span("span") as span:
    assert "end" not in vars(span)

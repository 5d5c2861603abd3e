"""The composition root: the only place that knows every part of a recording, and starts and ends them in order."""

from otel_memwatch.session.attach import attach
from otel_memwatch.session.wrap import wrap

__all__ = ["attach", "wrap"]

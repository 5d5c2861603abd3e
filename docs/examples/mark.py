"""`mark`: phases, one after the other."""

from otel_memwatch import mark

mark("Load")
rows = list(range(100_000))
mark("Sort")
rows.sort(reverse=True)
mark(None)

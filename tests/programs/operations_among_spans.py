"""Marks operations inside, around and beside separate spans."""

from __future__ import annotations

from marking import blip, mark, operation
from traced import tell, tracer

with tracer.start_as_current_span("theirs"):
    with operation("ours", size=30):
        blip(30)
        with tracer.start_as_current_span("inner theirs"):
            pass


@operation("generator")
def generator():
    with tracer.start_as_current_span("in generator"):
        yield


steps = generator()
next(steps)
with tracer.start_as_current_span("beside"):
    pass
list(steps)
mark("phase")
with tracer.start_as_current_span("in phase"):
    pass
mark(None)
try:
    with operation("failing"):
        raise KeyError("x")
except KeyError:
    pass
with operation("afterwards"):
    pass
tell()

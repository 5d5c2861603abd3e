"""Captured stacks as folded lines, for flamegraph.pl and inferno: "main (a.py:9);load (a.py:3) 1048576"."""

from __future__ import annotations

from otel_memwatch.run.stacks import frame_name, weighted_stacks
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write one line for each capture, outermost call first, with its bytes of growth."""
    for stack in weighted_stacks(run.stacks):
        names = [clean(frame_name(frame)).replace(";", ",") for frame in reversed(stack.frames)]
        out.write(f"{';'.join(names)} {stack.bytes}\n".encode("utf-8", "backslashreplace"))

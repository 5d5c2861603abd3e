"""Captured stacks for `google-pprof` of gperftools: a heap profile in text, with the names of its addresses."""

from __future__ import annotations

from otel_memwatch.run.stacks import frame_name, weighted_stacks
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the profile. Calls get numbers in place of addresses; google-pprof drops text in parentheses."""
    numbers: dict[str, int] = {}
    samples = []
    for stack in weighted_stacks(run.stacks):
        names = [clean(frame_name(frame)).replace(" (", "@").replace(")", "") for frame in stack.frames]
        calls = " ".join(f"0x{numbers.setdefault(name, len(numbers) + 1):x}" for name in names)
        samples.append((stack.bytes, calls))
    total = sum(size for size, _ in samples)
    lines = [
        "--- symbol",
        "binary=otel-memwatch",
        *(f"0x{number:x} {name}" for name, number in numbers.items()),
    ]
    lines += ["---", f"heap profile: 1: {total} [1: {total}] @ growth"]
    lines += [f"1: {size} [1: {size}] @ {calls}" for size, calls in samples]
    out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

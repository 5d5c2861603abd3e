"""`watch`: record this program."""

from otel_memwatch import watch

with watch("runs/fit", interval="50ms", tag={"model": "small"}, quiet=True) as run:
    table = [str(number) for number in range(300_000)]
print(run.peak.bytes, run.peak.certainty.value, run.path)

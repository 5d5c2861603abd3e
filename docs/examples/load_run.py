"""`load_run`: read the figures of a finished or running run."""

from otel_memwatch import load_run

run = load_run("runs/fit")
peak = run.peak
assert peak is not None
print(peak.certainty.value, peak.low, peak.high, "bytes")
for operation in run.operations:
    print(operation.operation.name, operation.seconds, operation.tree_peak)
print(run.report("markdown"))
run.plot("fit.png", size=(8, None))
samples = run.samples(["memwatch.tree.memory.usage"])
print(len(samples.time), "samples")

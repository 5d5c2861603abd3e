"""The examples of fastai's document on memory; with the argument "gpu" on a stand-in for PyTorch."""

import sys
import types

from otel_memwatch.compat.fastai import GPUMemTrace
from tests.support.fake_torch import Cuda

if "gpu" in sys.argv:
    torch = sys.modules["torch"] = types.SimpleNamespace(cuda=Cuda())
    torch.cuda.allocate(500)


def some_code() -> None:
    if "gpu" in sys.argv:
        torch.cuda.allocate(10)
        torch.cuda.blip(15)


mtrace = GPUMemTrace()

# Example 1
some_code()
mtrace.report()
delta_used, delta_peaked = mtrace.data()

some_code()
mtrace.report("2nd run of some_code()")
delta_used, delta_peaked = mtrace.data()

# Example 2
for i in range(3):
    mtrace.reset()
    some_code()
    mtrace.report(f"i={i}")

# Example 3
mtrace.reset()
for i in range(3):
    some_code()
    mtrace.report_n_reset(f"i={i}")

mtrace.start()
mtrace.stop()

# Example 4
mtrace = GPUMemTrace(silent=True)
mtrace.report()  # nothing will be printed
mtrace.silent(silent=False)
mtrace.report()  # printing resumed
mtrace.silent(silent=True)
mtrace.report()  # nothing will be printed

# Context manager
with GPUMemTrace() as mtrace:
    some_code()
delta_used, delta_peaked = mtrace.data()

with GPUMemTrace() as mtrace:
    some_code()
mtrace.report("measured in ctx")

with GPUMemTrace() as mtrace:
    some_code()
print(mtrace)

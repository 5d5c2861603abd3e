"""The examples of fastai's document on memory, run in programs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.programs import PROGRAMS, ROOT, environment, need, run_file, run_program

if TYPE_CHECKING:
    from pathlib import Path

FAKE = f"""
import sys, types
sys.path.insert(0, {str(ROOT)!r})
from tests.support.fake_torch import Cuda
torch = sys.modules["torch"] = types.SimpleNamespace(cuda=Cuda())
torch.cuda.allocate(500)
"""

EXAMPLES = """
from otel_memwatch.compat.fastai import GPUMemTrace
def some_code(): work()
mtrace = GPUMemTrace()

# Example 1
some_code()
mtrace.report()
delta_used, delta_peaked = mtrace.data()

some_code()
mtrace.report('2nd run of some_code()')
delta_used, delta_peaked = mtrace.data()

# Example 2
for i in range(3):
    mtrace.reset()
    some_code()
    mtrace.report(f'i={i}')

# Example 3
mtrace.reset()
for i in range(3):
    some_code()
    mtrace.report_n_reset(f'i={i}')

mtrace.start()
mtrace.stop()

# Example 4
mtrace = GPUMemTrace(silent=True)
mtrace.report() # nothing will be printed
mtrace.silent(silent=False)
mtrace.report() # printing resumed
mtrace.silent(silent=True)
mtrace.report() # nothing will be printed

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
"""


def lines(first: str, both: str, each: str) -> list[str]:
    return [
        first,
        f"{both} (2nd run of some_code())",
        *(f"{each} (i={i})" for i in range(3)),
        *(f"{each} (i={i})" for i in range(3)),
        "△Used Peaked MB:      0      0",
        f"{each} (exit)",
        f"{each} (exit)",
        f"{each} (measured in ctx)",
        f"{each} (exit)",
        each,
    ]


def test_the_examples_with_a_gpu(tmp_path: Path) -> None:
    output = run_program(
        FAKE + "def work(): torch.cuda.allocate(10); torch.cuda.blip(15)\n" + EXAMPLES, tmp_path
    )
    each, both = "△Used Peaked MB:     10     15", "△Used Peaked MB:     20     15"
    assert output.splitlines() == lines(each, both, each)


def test_the_examples_without_a_gpu(tmp_path: Path) -> None:
    output = run_program("def work(): pass\n" + EXAMPLES, tmp_path)
    zero = "△Used Peaked MB:      0      0"
    assert output.splitlines() == lines(zero, zero, zero)


def test_the_workarounds_for_the_leaky_traceback(tmp_path: Path) -> None:
    output = run_program(
        """
        from otel_memwatch.compat.fastai import gpu_mem_restore, gpu_mem_restore_ctx
        class Learner:
            @gpu_mem_restore
            def fit(self): raise RuntimeError("CUDA out of memory")
            def fit_one_cycle(self, cycles, rate): raise KeyboardInterrupt
        learn = Learner()
        try:
            with gpu_mem_restore_ctx():
               learn.fit_one_cycle(1,1e-2)
        except KeyboardInterrupt:
            print("interrupted")
        try: learn.fit()
        except RuntimeError as error: print(type(error).__name__, error)
        """,
        tmp_path,
    )
    assert output.splitlines() == ["interrupted", "RuntimeError CUDA out of memory"]


def test_in_a_real_ipython_memory_is_free_after_the_error_was_shown(tmp_path: Path) -> None:
    """IPython keeps the traceback of the last error; its frames have to be empty."""
    need("IPython")
    run_file(
        PROGRAMS / "compat" / "fastai_in_ipython.py", tmp_path, env=environment(IPYTHONDIR=str(tmp_path))
    )


def test_reduce_mem_usage(tmp_path: Path) -> None:
    need("pandas")
    output = run_program(
        """
        import pandas as pd
        from otel_memwatch.compat.fastai import reduce_mem_usage
        df = pd.DataFrame({"a": range(100_000), "b": [0.5] * 100_000})
        assert reduce_mem_usage(df) is df
        """,
        tmp_path,
    )
    assert output.splitlines() == [
        "Memory usage of dataframe is 1.53 MB",
        "Memory usage after optimization is: 0.76 MB",
        "Decreased by 50.0%",
    ]

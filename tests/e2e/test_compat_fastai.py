"""The examples of fastai's document on memory, run in programs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.programs import PROGRAMS, environment, need, run_file, run_program

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = PROGRAMS / "compat" / "fastai_examples.py"


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
    output = run_file(EXAMPLES, tmp_path, "gpu")
    each, both = "△Used Peaked MB:     10     15", "△Used Peaked MB:     20     15"
    assert output.splitlines() == lines(each, both, each)


def test_the_examples_without_a_gpu(tmp_path: Path) -> None:
    output = run_file(EXAMPLES, tmp_path)
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

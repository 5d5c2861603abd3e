"""An error in a real IPython holds no memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support.programs import need


def test_in_a_real_ipython_memory_is_free_after_the_error_was_shown() -> None:
    """IPython keeps the traceback of the last error; its frames have to be empty."""
    need("IPython")
    code = """
        import gc, weakref
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell('''
        import weakref
        from otel_memwatch.compat.fastai import gpu_mem_restore, is_in_ipython
        assert is_in_ipython()
        class Big: pass
        def inner():
            big = Big(); globals()['ref'] = weakref.ref(big)
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
        @gpu_mem_restore
        def fit(): inner()
        ''').raise_error()
        result = shell.run_cell("fit()")
        error = result.error_in_exec
        assert type(error) is RuntimeError, error
        assert str(error) == "CUDA out of memory. Tried to allocate 1 GiB"
        del result, error
        gc.collect()
        assert shell.user_ns["ref"]() is None, gc.get_referrers(shell.user_ns["ref"]())
    """
    code = textwrap.dedent(code).replace("'''\n", "'''\n")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout

"""The error of a function under `gpu_mem_restore`, shown by IPython: its locals are free afterwards."""

import gc

from IPython.core.interactiveshell import InteractiveShell

DEFINITIONS = """
import weakref
from otel_memwatch.compat.fastai import gpu_mem_restore, is_in_ipython
assert is_in_ipython()
class Big: pass
def inner():
    big = Big(); globals()['ref'] = weakref.ref(big)
    raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
@gpu_mem_restore
def fit(): inner()
"""

shell = InteractiveShell.instance()
shell.run_cell(DEFINITIONS).raise_error()
result = shell.run_cell("fit()")
error = result.error_in_exec
assert type(error) is RuntimeError, error
assert str(error) == "CUDA out of memory. Tried to allocate 1 GiB"
del result, error
gc.collect()
assert shell.user_ns["ref"]() is None, gc.get_referrers(shell.user_ns["ref"]())

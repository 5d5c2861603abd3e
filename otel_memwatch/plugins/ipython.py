"""`%load_ext otel_memwatch`: the peak of a cell in IPython and Jupyter.

The magics are those of `compat.ipython`, which measures cells as ipython_memory_usage did; what is said here is ours.
"""

from __future__ import annotations

from typing import Any

from otel_memwatch.compat import ipython as cells

GREETING = """\
otel-memwatch: the memory of cells, each with its peak
  %%memwatch            before a cell: what it needed at most, and what it kept
  %memwatch STATEMENT   the same of one statement
  %memwatch on | off    a line after every cell
  watch(), operation()  a run on disk, with report and picture: from otel_memwatch import watch, operation"""


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext otel_memwatch`."""
    cells.register(ipython)
    print(GREETING)  # noqa: T201 - what an extension offers is said when it is loaded


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext otel_memwatch`: stops, and takes the magics away."""
    cells.unload_ipython_extension(ipython)

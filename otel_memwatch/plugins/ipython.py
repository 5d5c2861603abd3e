"""`%load_ext otel_memwatch`: the peak of a cell in IPython and Jupyter.

The magics are those of `compat.ipython`, which measures cells as ipython_memory_usage did; the greeting is ours.
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
    """Add the magics: `%load_ext otel_memwatch`."""
    cells.register(ipython)
    print(GREETING)  # noqa: T201 - extensions announce their magics


def unload_ipython_extension(ipython: Any) -> None:
    """Stop measuring and remove the magics: `%unload_ext otel_memwatch`."""
    cells.unload_ipython_extension(ipython)

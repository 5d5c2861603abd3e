"""A shell of IPython without a terminal, for programs that run cells in it."""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell

shell: Any = InteractiveShell.instance(colors="nocolor")


def cell(source: str) -> Any:
    """Runs a cell, prints its value as a person would see it, and gives its result."""
    result = shell.run_cell(source, store_history=True)
    if result.result is not None:
        print("value:", repr(result.result))
    return result

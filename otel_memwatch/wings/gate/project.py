"""What a project says of its runs: the table [tool.otel-memwatch] of the nearest pyproject.toml.

::

    [tool.otel-memwatch]
    effect = "2%"                    # the smallest difference that compare looks for
    baseline = "memory.json"         # what budgets such as "+5%" are held against

    [tool.otel-memwatch.budgets]
    memory = "2GiB"
    "operation:Train" = "1.5GiB"
    seconds = 600
"""

from __future__ import annotations

import os

from otel_memwatch.config import parse_budget, parse_share
from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "pyproject.toml"
_TABLE = b"tool.otel-memwatch"
_KEYS = {"budgets", "effect", "baseline"}


class Project(NamedTuple):
    """What a project says; all empty where it says nothing."""

    budgets: tuple[str, ...] = ()
    """Each as "NAME=LIMIT"."""
    effect: float | None = None
    """Share by which a figure has to differ."""
    baseline: str | None = None
    """File that growths are held against."""


def project(directory: str = ".") -> Project:
    """What the nearest pyproject.toml says, in the directory or above. Raises `UsageError` where it cannot be used.

    Cost: a few system calls, and nothing is loaded, where the file does not name us.
    """
    path = _nearest(directory)
    if path is None:
        return Project()
    from otel_memwatch.runtime.user_files import read_file

    try:
        text = read_file(path)
    except OSError:
        return Project()  # it is not ours to complain about
    if _TABLE not in text:
        return Project()
    return _parse(text, path)


def with_budgets(
    settings: Mapping[str, Any], directory: str = ".", *, try_baseline: bool = True
) -> dict[str, Any]:
    """The settings "budget" and "baseline" with the project's own; of one figure the budget that was given counts.

    With `try_baseline`, read a baseline that was given: one that cannot be used is a mistake to report before the command
    starts. A caller that reads it at once passes False, as a pipe can be read only once.

    Raises `UsageError` for a growth that was given and a baseline that there is not, before anything starts.
    """
    given, ours = tuple(settings["budget"]), project(directory)
    named = {text.rpartition("=")[0].strip() for text in given}
    more = tuple(text for text in ours.budgets if text.rpartition("=")[0].strip() not in named)
    baseline = settings["baseline"] or ours.baseline
    growth = next((text for text in given if parse_budget(text)[2]), None)
    if growth is not None and baseline is None:
        raise UsageError(
            f"The budget {growth} is against a baseline, and none is named.", "add --baseline FILE"
        )
    if settings["baseline"] and try_baseline:
        from otel_memwatch.wings.gate.baseline import load

        load(settings["baseline"])  # raises what is wrong with it
    return {**settings, "budget": given + more, "baseline": baseline}


def _nearest(directory: str) -> str | None:
    try:
        here = os.path.abspath(directory)
    except OSError:  # the working directory is gone
        return None
    while True:
        path = os.path.join(here, FILE)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def _parse(text: bytes, path: str) -> Project:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text.decode())
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    tool = document.get("tool")
    table = tool.get("otel-memwatch") if isinstance(tool, dict) else None
    if table is None:
        return Project()
    if not isinstance(table, dict) or set(table) - _KEYS:
        unknown = ", ".join(sorted(set(table) - _KEYS)) if isinstance(table, dict) else "it"
        raise UsageError(f"{path}: [tool.otel-memwatch] may hold {', '.join(sorted(_KEYS))}, not {unknown}.")
    budgets = table.get("budgets", {})
    if not isinstance(budgets, dict):
        raise UsageError(f"{path}: [tool.otel-memwatch.budgets] is a table of names and limits.")
    texts = tuple(f"{name}={limit}" for name, limit in budgets.items())
    try:
        for one in texts:
            parse_budget(one)
        effect = None if "effect" not in table else parse_share(str(table["effect"]))
    except ValueError as error:
        raise UsageError(f"{path}: {error}.") from None
    return Project(texts, effect, _baseline(table.get("baseline"), path))


def _baseline(name: object, path: str) -> str | None:
    """The project's baseline, whose name is relative to its file; `None`: it has none, or nobody has made it yet."""
    if not name:
        return None
    if not isinstance(name, str):
        raise UsageError(f"{path}: the baseline is the name of a file.")
    if name.startswith("git:"):
        return name
    found = os.path.join(os.path.dirname(path), name)
    return found if os.path.exists(found) else None

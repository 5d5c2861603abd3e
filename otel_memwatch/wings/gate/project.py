"""Settings of a project: the table [tool.otel-memwatch] of the nearest pyproject.toml.

::

    [tool.otel-memwatch]
    effect = "2%"                    # the smallest difference that compare looks for
    baseline = "memory.json"         # the baseline of budgets such as "+5%"

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
    """Settings of a project; empty by default."""

    budgets: tuple[str, ...] = ()
    """Each as "NAME=LIMIT"."""
    effect: float | None = None
    """Smallest difference that counts, as a share."""
    baseline: str | None = None
    """File that growths are compared with."""


def project(directory: str = ".") -> Project:
    """Return the settings of the nearest pyproject.toml, in the directory or above. Raises `UsageError` if it is invalid.

    Cost: a few system calls; no module is loaded unless the file names this package.
    """
    try:
        here = os.path.abspath(directory)
    except OSError:  # the working directory is gone
        return Project()
    while not os.path.isfile(path := os.path.join(here, FILE)):
        above = os.path.dirname(here)
        if above == here:
            return Project()
        here = above
    from otel_memwatch.runtime.user_files import read_file

    try:
        text = read_file(path)
    except OSError:
        return Project()  # an unreadable file is the project's concern
    if _TABLE not in text:
        return Project()
    return _parse(text, path)


def with_budgets(
    settings: Mapping[str, Any], directory: str = ".", *, try_baseline: bool = True
) -> dict[str, Any]:
    """Add the project's budgets and baseline to the settings. A given budget overrides the project's for that figure.

    With `try_baseline`, read a given baseline: an unusable one is an error to report before the command starts. A
    caller that reads it at once passes False, because a pipe can be read only once.

    Raises `UsageError` for a given growth without a baseline, before anything starts.
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

        load(settings["baseline"])  # raises for an unusable baseline
    return {**settings, "budget": given + more, "baseline": baseline}


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
    """Return the path of the project's baseline, relative to its pyproject.toml; `None`: unset, or not saved yet."""
    if not name:
        return None
    if not isinstance(name, str):
        raise UsageError(f"{path}: the baseline is the name of a file.")
    if name.startswith("git:"):
        return name
    found = os.path.join(os.path.dirname(path), name)
    return found if os.path.exists(found) else None

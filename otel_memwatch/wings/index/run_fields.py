"""Fields of a run for the columns, order, groups and conditions of a table of runs.

Figures have the unit and the field of `run.figures`; this module decides only on their place among the columns.
"""

from __future__ import annotations

from otel_memwatch.errors import UsageError
from otel_memwatch.run.figures import FIGURES
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.wings.index.indexed_run import IndexedRun

if TYPE_CHECKING:
    from collections.abc import Callable

_TAG = "tag."


class RunField(NamedTuple):
    """One field."""

    name: str
    kind: str
    """"text", "size", "duration", "moment", "rounded" or "number"."""
    of: Callable[[IndexedRun], str | float | None]


def _plain(name: str, kind: str, field: str | None = None) -> RunField:
    position = IndexedRun._fields.index(field or name)
    return RunField(name, kind, lambda row: row[position])


_KINDS = {"By": "size", "s": "duration"}
_FIGURES = {
    row.name: _plain(row.name, _KINDS.get(row.unit, "number"), row.field) for row in FIGURES if row.field
}
_DURATION = _FIGURES["seconds"]._replace(name="duration")


# fmt: off
_COLUMNS = (
    _plain("run", "text", "path"), _plain("id", "text"), _plain("name", "text"), _plain("state", "text"),
    _plain("started", "moment"), _DURATION, _FIGURES["memory"], _plain("low", "size"),
    _plain("high", "size"), _plain("certainty", "text"), _plain("how", "text"), _FIGURES["process"], _FIGURES["main"],
    _FIGURES["gpu"], _FIGURES["cgroup"], _plain("limit", "size"), _plain("input", "size", "input_bytes"), _plain("files", "size"),
    _FIGURES["cpu"], RunField("cores", "rounded", lambda row: row.cores), _FIGURES["read"],
    _FIGURES["written"], _FIGURES["faults"], _FIGURES["processes"], _FIGURES["stalled"],
    _plain("asked", "size"), RunField("unused_gib_hours", "rounded", lambda row: row.unused_gib_hours),
    _plain("asked_cores", "rounded"), RunField("unused_core_hours", "rounded", lambda row: row.unused_core_hours),
    _plain("predicted", "size"), RunField("ratio", "rounded", lambda row: row.ratio),
    _plain("exit", "number", "exit_code"), _plain("signal", "number"), _plain("oom", "number", "oom_kills"),
    _plain("end", "text", "reason"), _plain("verdict", "text"), _plain("key", "text"), RunField("command", "text", lambda row: " ".join(row.command)),
    _plain("cwd", "text"), _plain("host", "text"), _plain("system", "text"), _plain("cpus", "number"), _plain("mode", "text"),
    _plain("by", "text"), _plain("error", "text"), _plain("group", "text"), _plain("rank", "number"), _plain("commit", "text"),
)
# fmt: on
COLUMNS = {one.name: one for one in _COLUMNS}
_SYNONYMS = {"peak": "memory", "seconds": "duration", "path": "run", "rss": "process", "program": "key"}


def column(name: str) -> RunField | None:
    """Return the field of this name, also "tag.NAME"; `None`: unknown name."""
    if name.startswith(_TAG) and len(name) > len(_TAG):
        tag = name.removeprefix(_TAG)
        # Most runs have no tags, so parse only non-empty JSON.
        return RunField(name, "text", lambda row: row.tags.get(tag) if row.tags_json != "{}" else None)
    return COLUMNS.get(_SYNONYMS.get(name, name))


def columns(names: str, option: str) -> list[RunField]:
    """Return the fields that an option names, separated by commas. Raises `UsageError`."""
    found = [(name.strip(), column(name.strip())) for name in names.split(",") if name.strip()]
    unknown = next((name for name, one in found if one is None), None)
    if unknown is not None or not found:
        given = "nothing" if unknown is None else repr(unknown)
        raise UsageError(f"{option}: there is no field {given}.", f"there are {', '.join(COLUMNS)}, tag.NAME")
    return [one for _, one in found if one is not None]

"""Redacted copy of a run directory: texts become placeholders, figures stay.

Every text is replaced unless a rule here keeps it, so a new field of the record is redacted until a rule names it. The same
text becomes the same placeholder in one copy: "<redacted-text-1>". Keys of objects stay, except names
of tags, attributes and devices.
"""

from __future__ import annotations

import json
import re

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import (
    BUDGETS_FILE,
    MADE_OF_FILE,
    PROCESSES_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    STACKS_FILE,
    TRADE_FILE,
)
from otel_memwatch.record.jsonl import Damage, open_regular, text_lines
from otel_memwatch.record.made_of import KINDS
from otel_memwatch.record.resource import KEYS
from otel_memwatch.record.sample_files import segments
from otel_memwatch.record.sample_lines import all_lines
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

REDACTED = "redacted"
"""Name and tag of a redacted run."""

_KEPT = frozenset(
    {"certainty", "how", "evidence", "metric", "unit", "event", "mode", "system", "release", "machine", "version", "python", "kind",
     "status", "verdict", "figure", "period", "vendor", "launcher"}
)  # fmt: skip
"""Keys with values of the program's own vocabulary, or of the kernel's version."""
_NAMES = frozenset({"operation", "operations", "function"})
"""Keys with names of operations and functions."""
_CHOSEN = {
    "gpu": "gpu",
    "gpu_tree": "gpu",
    "gpu_used": "gpu",
    "held": "gpu",
    "accounted": "gpu",
    "allocators": "allocator",
    "tags": "tag",
    "resource": "attribute",
}
"""Keys of objects with keys that the program does not choose, and the kind of their placeholders."""
_KEYS = KEYS | {"glibc", "jemalloc", "mimalloc", "pymalloc"}
"""Keys of such objects that the program chooses."""
_PLAIN = re.compile(
    r"exit code \d+|SIG[A-Z0-9]+|killed by SIG[A-Z0-9]+|finished|running|ok|unavailable|failed|auto|none|exact|"
    r"user|system|read|write|minor|major|some|full|text"
)
"""Texts that are kept with any key."""
_ID = re.compile(r"[0-9a-f]{2}|[0-9a-f]{16}|[0-9a-f]{32}")
_IDS = frozenset({"trace", "span", "parent", "trace_id", "span_id", "parent_span_id", "flags"})


class Redactor:
    """Placeholders of one output."""

    def __init__(self, *, everything: bool = False) -> None:
        self._everything = everything
        self._placeholders: dict[str, str] = {}

    def text(self, value: str, kind: str = "text") -> str:
        """Return the placeholder of a text; an empty text stays."""
        if not value:
            return value
        return self._placeholders.setdefault(value, f"<redacted-{kind}-{len(self._placeholders) + 1}>")

    def value(self, value: Any, key: str = "", *, named: bool = False) -> Any:
        """Return a JSON value with placeholders for its texts. `named`: "name" is the name of an operation."""
        if isinstance(value, str):
            if key == "figure" and self._everything:
                figure, colon, of = value.partition(":")  # "operation:NAME"
                return figure + colon + self.text(of, "operation")
            return (
                value if self._stays(value, key, named=named) else self.text(value, _KIND_OF.get(key, "text"))
            )
        if key in ("tree", "parts") and isinstance(value, list):
            return [self._part(one) for one in value]
        if key == "frames" and isinstance(value, list):
            return [self._frame(one) for one in value]
        if isinstance(value, list):
            return [self.value(one, key, named=named) for one in value]
        if isinstance(value, dict):
            # Attributes are those of an operation, or of a metric with our own keys.
            kind = "attribute" if named and key == "attributes" else _CHOSEN.get(key)
            if kind is None:
                return {name: self.value(one, name, named=named) for name, one in value.items()}
            # A tag "version" is no version of ours: keys that others choose keep no value.
            return {self._key(name, kind): self.value(one) for name, one in value.items()}
        return value

    def _key(self, name: str, kind: str) -> str:
        return name if (kind == "gpu" and name.isdigit()) or name in _KEYS else self.text(name, kind)

    def _part(self, part: Any) -> Any:
        """Return a part of `made_of.json`, [kind, name, bytes]. The kinds are the program's own words."""
        if not isinstance(part, list) or len(part) != 3:
            return []
        kind = part[0] if part[0] in KINDS else self.value(part[0])
        return [kind, self.value(part[1], "file"), part[2]]

    def _frame(self, frame: Any) -> Any:
        """Return a call of `stacks.json`, [function, file, line]."""
        if not isinstance(frame, list) or not frame:
            return []
        return [self.value(frame[0], "function"), *(self.value(one, "file") for one in frame[1:])]

    def _stays(self, value: str, key: str, *, named: bool) -> bool:
        if key in _NAMES or (named and key == "name"):
            return not self._everything
        if key in _IDS:
            return bool(_ID.fullmatch(value))
        if key in _KEPT:
            return True
        return bool(_PLAIN.fullmatch(value))


_KIND_OF = {"argv": "argument", "command": "argument", "cwd": "path", "file": "path", "path": "path"} | {
    kind: kind for kind in ("name", "host", "group", "operation", "function")
}
"""Kind of a text by its key."""


def redacted_copy(source: Path, target: Path, redactor: Redactor) -> None:
    """Write a redacted copy of a run into an existing, empty directory. Raises `RunError` if there is no record to copy."""
    if not (source / RUN_FILE).is_file():
        raise RunError(f"{source} has no {RUN_FILE}: only recorded runs can be redacted.")
    samples = source / SAMPLES_FILE
    for path in sorted({*source.iterdir(), *([samples] if segments(samples) else [])}):
        name = path.name
        operations = name.startswith("operations-") and name.endswith(".jsonl")
        if not (
            operations
            or name
            in (RUN_FILE, SAMPLES_FILE, PROCESSES_FILE, BUDGETS_FILE, STACKS_FILE, MADE_OF_FILE, TRADE_FILE)
        ):
            continue
        with (target / name).open("w", encoding="utf-8") as out:
            if name.endswith(".jsonl"):
                damage = Damage(name)
                # A damaged line is left out: its texts cannot be found. Segments become one file.
                for line in (all_lines if name == SAMPLES_FILE else text_lines)(path, damage):
                    if (document := _parsed(line)) is not None:
                        out.write(_written(redactor.value(document, named=operations)) + "\n")
                continue
            with open(open_regular(path), "rb") as file:
                document = _parsed(file.read())
            is_run = name == RUN_FILE and isinstance(document, dict)
            document = redactor.value(document)
            if is_run:
                document["name"] = REDACTED
                document["tags"] = {**(document.get("tags") or {}), REDACTED: "yes"}
            out.write(_written(document) + "\n")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _written(value: Any) -> str:
    return strict_json.dumps(value, separators=(",", ":"))

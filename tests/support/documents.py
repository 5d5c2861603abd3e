"""README and the pages of the manual, as text, as blocks and as commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [
    ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "dashboards/README.md")
]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    note: str
    """The comment above it."""
    line: int

    @property
    def is_run(self) -> bool:
        """Whether nothing says why it cannot be run."""
        return not self.note.startswith(("not run: ", "long: "))


def blocks(path: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    text = path.read_text()
    return [
        Block(found["language"], found["text"], found["note"] or "", text[: found.start()].count("\n") + 1)
        for found in _BLOCK.finditer(text)
    ]


def name(path: Path) -> str:
    """A page as a test is named after it."""
    return str(path.relative_to(ROOT))


def commands(path: Path) -> Iterator[list[str]]:
    """Words of each `otel-memwatch` command that a page shows, in blocks and in the text, up to what it is to run."""
    text = path.read_text()
    lines = [
        line for block in blocks(path) if block.language in {"sh", ""} for line in block.text.splitlines()
    ]
    lines += re.findall(
        r"`([^`\n]*otel-memwatch [^`\n]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    )
    for line in lines:
        for part in re.split(r"\s(?:&&|\||;)\s|\s#\s", line.removeprefix("$ ")):
            found = re.search(r"(?:^|[\s(])otel-memwatch (\w.*)", part)
            if found is None:
                continue
            try:
                words = shlex.split(found[1], comments=True)
            except ValueError:
                continue  # a quotation in the text
            yield words[: words.index("--")] if "--" in words else words

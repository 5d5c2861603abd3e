"""Texts that people read: comments and docstrings of the package and of the tests, documents, and `--help`."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from otel_memwatch.catalog import METRICS
from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import cli

ROOT = Path(__file__).parents[2]
SOURCES = Path(os.environ.get("OTEL_MEMWATCH_TEST_SOURCES", ROOT))
"""Root of the checkout. The staged tests run outside it, without the package's sources."""
PACKAGE = SOURCES / "otel_memwatch"
MODULES = "modules"
"""Room of the modules that are directly in the package."""
GENERATED = ("commands.md", "python.md", "run-directory.md", "schemas.md")
"""Pages of docs/reference generated from docstrings, which are checked at their source."""
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "dashboards/README.md",
    "dashboards/runbook.md",
    "deploy/README.md",
    ".github/pull_request_template.md",
)

_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|ruff:|pragma|mypy:|!|-\*-)|#\s*$")
_MARKED = re.compile(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"<!--.*?-->", re.DOTALL)
_HASH_COMMENTS = re.compile(r"(?:^[ \t]*#(?!!|SBATCH).*\n)+", re.MULTILINE)
_ANNOTATION = re.compile(r"^\s*-?\s*(?:summary|description|label|placeholder|about): (.+)$", re.MULTILINE)
_TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_C_COMMENT = re.compile(r"/\*((?s:.*?))\*/|((?:^[ \t]*//.*\n)+)|\s//\s(.*)$", re.MULTILINE)


class Text(NamedTuple):
    """One piece of prose: a docstring, a block of comments, a document, a help text."""

    kind: str
    """"package", "docs", "help" or "tests"."""
    room: str
    """Group that has a row in limits.toml."""
    place: str
    """File and line, or command and option."""
    text: str
    is_docstring: bool = False


def package_texts() -> Iterator[Text]:
    """Yield the docstrings and comments of the package."""
    for metric in METRICS.values():
        yield Text("package", "catalogue", f"catalogue, {metric.name}", f"{metric.description} {metric.note}")
    for path in sorted(PACKAGE.rglob("*")):
        if "__pycache__" in path.parts or ".min." in path.name:
            continue
        parts = path.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else MODULES
        place = str(path.relative_to(SOURCES))
        if path.suffix == ".py":
            yield from python_texts(path.read_text(), "package", room, place)
        elif path.suffix == ".md":
            yield from paragraphs(path.read_text(), "package", path.name, place)
        elif path.suffix in {".c", ".js", ".css"}:
            source = path.read_text()
            for found in _C_COMMENT.finditer(source):
                line = source[: found.start()].count("\n") + 1
                text = re.sub(r"^[ \t]*(?://+|\*)", "", found[1] or found[2] or found[3], flags=re.MULTILINE)
                yield Text("package", room, f"{place}:{line}", text)


def python_texts(source: str, kind: str, room: str, place: str) -> Iterator[Text]:
    """Yield the docstrings and blocks of comments of a module."""
    for node in ast.walk(ast.parse(source)):
        for child in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                text = child.value.value
                if isinstance(text, str):
                    shown = without_examples(text, child.col_offset)
                    yield Text(kind, room, f"{place}:{child.lineno}", shown, is_docstring=True)
    block: list[str] = []
    first = previous = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line = token.start[0]
        if block and line != previous + 1:
            yield Text(kind, room, f"{place}:{first}", "\n".join(block))
            block = []
        if not block:
            first = line
        block.append(token.string.lstrip("#: "))
        previous = line
    if block:
        yield Text(kind, room, f"{place}:{first}", "\n".join(block))


def document_texts() -> Iterator[Text]:
    """Yield everything outside the package: documents, dashboards, alerts, and comments of examples."""
    for path in documents():
        place = str(path.relative_to(ROOT))
        yield from paragraphs(path.read_text(), "docs", _room(path), place)
    for path in sorted((ROOT / "changes").glob("*.*.md")):
        yield from paragraphs(path.read_text(), "docs", "changes", f"changes/{path.name}")
    for folder in ("dashboards", "deploy", "docs", ".github"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                yield from file_texts(path)


def without_examples(docstring: str, indentation: int) -> str:
    """Return a docstring without its indented blocks of commands or code."""
    block = rf"\n[ \t]*\n(?:[ ]{{{indentation + 4},}}\S.*(?:\n|$))+"
    return re.sub(block, "\n\n", docstring)


def documents() -> list[Path]:
    """Return the documents outside the package that are written by hand."""
    pages = (path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED)
    return [*(ROOT / name for name in DOCUMENTS), *sorted(pages)]


def paragraphs(text: str, kind: str, room: str, place: str) -> Iterator[Text]:
    """Yield the paragraphs of a document, without code, generated blocks and notes."""
    for hidden in (_MARKED, _NOTE, _FENCED):
        text = hidden.sub(lambda found: "\n" * found[0].count("\n"), text)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", text):
        if paragraph.strip():
            yield Text(kind, room, f"{place}:{line}", paragraph)
        line += paragraph.count("\n")


def file_texts(path: Path) -> Iterator[Text]:
    """Yield the prose of a file that is not a document: code, a dashboard, a manifest."""
    place, room = str(path.relative_to(ROOT)), _room(path)
    if path.suffix == ".py":
        yield from python_texts(path.read_text(), "docs", room, place)
    elif path.suffix == ".json" and path.parent.name == "grafana":
        for text in _shown(json.loads(path.read_text())):
            # The list below a description repeats the catalogue, which has a room.
            yield Text("docs", room, place, re.sub(r"^- `.*$", "", text, flags=re.MULTILINE))
    elif path.suffix in {".sh", ".sbatch", ".yaml", ".yml"} or path.name == "Dockerfile":
        text = path.read_text()
        for found in _HASH_COMMENTS.finditer(text):
            line = text[: found.start()].count("\n") + 1
            yield Text("docs", room, f"{place}:{line}", re.sub(r"^\s*#", "", found[0], flags=re.MULTILINE))
        for found in _ANNOTATION.finditer(text):
            yield Text("docs", room, f"{place}:{text[: found.start()].count(chr(10)) + 1}", found[1])


def _shown(value: object) -> Iterator[str]:
    """Yield the titles, descriptions and texts of a dashboard."""
    if isinstance(value, list):
        for one in value:
            yield from _shown(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str) and key in {"title", "description", "content"}:
                yield one
            else:
                yield from _shown(one)


def _room(path: Path) -> str:
    return path.name if path.parent == ROOT else path.relative_to(ROOT).parts[0]


def help_texts() -> Iterator[Text]:
    """Yield the help of every command and option."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield Text("help", "help", f"{name} --help", COMMANDS[name])
        yield from command_texts(command, name)


def command_texts(command: click.Command, name: str) -> Iterator[Text]:
    """Yield the help of a command and of its subcommands."""
    yield Text("help", "help", f"{name} --help", command.help or "")
    yield Text("help", "help", f"{name} --help", re.split(r"\x08|Examples:", command.epilog or "")[0])
    for option in command.params:
        text = getattr(option, "help", None)
        if text:
            yield Text("help", "help", f"{name} --help, {option.opts[0]}", text)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from command_texts(child, f"{name} {child.name}")


def texts_of_tests() -> Iterator[Text]:
    """Yield the names of the tests, and the docstrings and comments of all files below tests/."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "__pycache__" in path.parts or path.parent.name == "prose" or path.name == "test_prose.py":
            continue
        source, place = path.read_text(), str(path.relative_to(ROOT))
        yield from python_texts(source, "tests", "tests", place)
        for found in _TEST_NAME.finditer(source):
            line = source[: found.start()].count("\n") + 1
            yield Text("tests", "tests", f"{place}:{line}", found[1].replace("_", " "))


def all_texts() -> Iterator[Text]:
    """Yield every text that the lint reads."""
    yield from texts_of_tests()
    yield from package_texts()
    yield from document_texts()
    yield from help_texts()

"""Pages of the manual that are made of the code: commands, Python, the run directory, JSON schemas."""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import otel_memwatch
from otel_memwatch import config, errors, model
from otel_memwatch.api import commands, devices, keywords, watching
from otel_memwatch.api import loaded_run as api_run
from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import cli, example_lines
from otel_memwatch.in_target.operations import api as operations
from otel_memwatch.record import format as record_format
from otel_memwatch.record import samples
from otel_memwatch.run import recorded_run, results

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
PACKAGE = Path(otel_memwatch.__file__).parent
MADE = "<!-- made by tests/readme/generate.py: change the code, not this page -->"


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", MADE, *parts]) + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(map(cell, row)) + " |" for row in [head, ["---"] * len(head), *rows])


def cell(text: str) -> str:
    """Text of a cell as every reader of Markdown takes it: no bar in it, and no markup but what stands in back quotes."""
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    return "".join(code(part) if part.startswith("`") else plain(part) for part in parts)


def code(quoted: str) -> str:
    """A bar in code is one that readers of tables do not agree about."""
    if "|" not in quoted:
        return quoted
    return f"<code>{html.escape(quoted[1:-1]).replace('|', '&#124;')}</code>"


def plain(text: str) -> str:
    """What looks like a tag is none."""
    return text.replace("<", "&lt;").replace("|", "&#124;")


# -- commands


def commands_page() -> str:
    listed = table(
        ["command", "what it does"], [[f"[`{name}`](#{name})", text] for name, text in COMMANDS.items()]
    )
    parts = [
        "`otel-memwatch COMMAND --help` prints this for the installed version.",
        "Settings of `wrap`, `attach` and `watch()` with their variables: [settings](settings.md).",
        listed,
    ]
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        parts += list(_command(name, found, "##"))
    return page("Commands", *parts)


def _command(name: str, found: click.Command, level: str) -> Iterator[str]:
    context = click.Context(found, info_name=f"otel-memwatch {name}")
    yield f"{level} {name}"
    usage = " ".join(found.collect_usage_pieces(context))
    yield f"```text\notel-memwatch {name} {usage}\n```"
    for paragraph in (found.help or "").replace("\f", "").split("\n\n"):
        words = paragraph.replace("\b", "").strip()
        if words:
            yield plain(" ".join(words.split()))
    settings = {option.flag for option in config.OPTIONS.values() if name in option.commands}
    rows = [
        [f"`{_spelled(option)}`", _told(option, context)]
        for option in found.params
        if isinstance(option, click.Option)
        and option.help
        and not option.hidden
        and not {*option.opts} & {*settings, "--help"}
    ]
    if settings:
        yield f"Options: its [settings](settings.md){', and' if rows else '.'}"
    if rows:
        yield table(["option", "meaning"], rows)
    listed = (found.epilog or "").partition("Examples:")[0].replace("\b", "").strip()
    if listed:
        yield f"```text\n{listed}\n```"
    shown = example_lines(name)
    if shown:
        yield "```text\n" + "\n".join(shown) + "\n```"
    if isinstance(found, click.Group):
        for sub in found.list_commands(context):
            below = found.get_command(context, sub)
            assert below is not None
            yield from _command(f"{name} {sub}", below, level + "#")


def _spelled(option: click.Option) -> str:
    """An option as it is typed; not by Click's own help, whose form differs from one version to the next."""
    names = ", ".join(sorted(option.opts, key=lambda name: name.startswith("--")))
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    if option.is_flag:
        return names
    choices = getattr(option.type, "choices", None)
    value = option.metavar or (
        "|".join(map(str, choices)) if choices else option.type.name.split()[0].upper()
    )
    return f"{names} {value}"


def _told(option: click.Option, context: click.Context) -> str:
    default = option.get_default(context) if option.show_default and not option.is_flag else None
    told = option.help or ""
    return f"{told} Default: {default}." if isinstance(default, (str, int, float)) else told


# -- Python


def python_page() -> str:
    parts = [
        "The whole API is typed. `import otel_memwatch` loads almost nothing; each name is loaded at its first use.",
        "## Recording",
        *_function("watch", watching),
        *_example("watch"),
        "The settings are those of the command line, as keywords:",
        _keywords(keywords.WatchSettings, keywords.AttachSettings),
        *_function("attach", watching),
        *_example("attach"),
        *_function("run_command", commands),
        *_example("run_command"),
        "Settings in addition to those of `watch`:",
        _keywords(keywords.CommandSettings),
        *_function("run_command_async", commands),
        "## Operations",
        *_function("operation", operations),
        *_example("operation"),
        *_function("mark", operations),
        *_example("mark"),
        "## Reading",
        *_function("load_run", api_run),
        *_example("load_run"),
        *_class("Run", api_run, recorded_run, "RecordedRun"),
        "`Run.report` takes:",
        _typed(keywords, "ReportOptions"),
        "`Run.plot` takes:",
        _typed(keywords, "PlotOptions"),
        "## Results of a run",
        *_class("Peak", model),
        *_class("Certainty", model),
        *_class("Peaks", results),
        *_class("OperationFigures", results),
        *_class("ProcessFigures", results),
        *_class("Samples", samples),
        "## GPUs",
        *_function("gpus", devices),
        *_function("best_gpu", devices),
        *_class("GPU", devices),
        *_class("GPUMemory", devices),
        *_example("gpus"),
        "## Errors",
        "Every error derives from `MemwatchError`; its text is a sentence for a person. Operations never raise into the program.",
        *_errors(),
        *_example("errors"),
    ]
    return page("Python", *parts)


def _example(name: str) -> Iterator[str]:
    yield f"```python\n{(EXAMPLES / f'{name}.py').read_text().split(chr(10), 2)[2].strip()}\n```"


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _found(module: ModuleType, name: str) -> list[Any]:
    """Definitions of a name at the top of a module: overloads first."""
    return [node for node in _tree(module).body if getattr(node, "name", None) == name]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, method: bool = False) -> str:
    arguments = ast.unparse(node.args)
    if method:
        arguments = re.sub(r"^self(, )?", "", arguments)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({arguments}){returned}"


def _function(name: str, module: ModuleType) -> Iterator[str]:
    nodes = _found(module, name)
    overloads = [node for node in nodes if any(ast.unparse(d) == "overload" for d in node.decorator_list)]
    shown = overloads[:2] or nodes
    yield f"### {name}"
    yield "```text\n" + "\n".join(_signature(node, name) for node in shown) + "\n```"
    yield from _prose(ast.get_docstring(nodes[-1]) or "")


def _prose(docstring: str) -> Iterator[str]:
    """A docstring as Markdown: its sections become lists."""
    for paragraph in docstring.split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        if head == "Returns:":
            yield f"Returns: {' '.join(rest.split())}"
        elif head in {"Args:", "Raises:", "Attributes:"}:
            items: list[str] = []
            for line in textwrap.dedent(rest).splitlines():
                if line[:1].strip() or not items:
                    items.append(line)
                else:
                    items[-1] += " " + line.strip()
            lines = [re.sub(r"^(\w+): ", r"`\1`: ", item) for item in items]
            yield f"{head[:-1]}:\n\n" + "\n".join(f"- {line}" for line in lines)
        elif paragraph.startswith("|"):
            yield paragraph
        elif paragraph.strip():
            yield " ".join(paragraph.split())


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of what is annotated, or assigned, in a class."""
    body = node.body
    for place, entry in enumerate(body):
        after = body[place + 1] if place + 1 < len(body) else None
        told = ""
        if (
            isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            told = " ".join(after.value.value.split())
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
            yield entry.target.id, ast.unparse(entry.annotation).replace(" | ", " or "), told
        elif isinstance(entry, ast.Assign) and isinstance(entry.targets[0], ast.Name) and told:
            yield entry.targets[0].id, ast.unparse(entry.value), told


def _typed(module: ModuleType, name: str) -> str:
    (node,) = _found(module, name)
    return table(["keyword", "type", "meaning"], [[f"`{n}`", f"`{t}`", d] for n, t, d in _fields(node)])


def _keywords(*classes: type) -> str:
    rows = []
    for one in classes:
        (node,) = _found(keywords, one.__name__)
        for name, kind, _ in _fields(node):
            rows.append([f"`{name}`", f"`{kind}`", config.OPTIONS[name].help])
    return table(["keyword", "type", "meaning"], rows)


def _class(
    name: str, module: ModuleType, base: ModuleType | None = None, base_name: str = ""
) -> Iterator[str]:
    (node,) = _found(module, name)
    yield f"### {name}"
    yield from _prose(ast.get_docstring(node) or "")
    fields = [[f"`{n}`", f"`{t}`", d] for n, t, d in _fields(node) if not n.startswith("_")]
    if fields:
        yield table(["field", "type", "meaning"], fields)
    members: dict[str, tuple[str, str]] = {}
    for owner in [node, *(_found(base, base_name) if base else ())]:
        for entry in owner.body:
            if isinstance(entry, ast.FunctionDef) and not entry.name.startswith("_"):
                is_property = any("property" in ast.unparse(d) for d in entry.decorator_list)
                returned = ast.unparse(entry.returns) if entry.returns else ""
                shown = (
                    f"{entry.name}: {returned}" if is_property else _signature(entry, entry.name, method=True)
                )
                told = (ast.get_docstring(entry) or "").split("\n\n")[0]
                if told:
                    members.setdefault(entry.name, (shown, " ".join(told.split())))
    if members:
        yield table(["member", "gives"], [[f"`{shown}`", told] for shown, told in members.values()])


def _errors() -> Iterator[str]:
    rows = []
    for node in _tree(errors).body:
        if isinstance(node, ast.ClassDef):
            told = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            kind = getattr(errors, node.name)
            rows.append(
                [f"`{node.name}`", ", ".join(ast.unparse(b) for b in node.bases), told, str(kind.exit_code)]
            )
    yield table(["error", "is a", "means", "exit code of the command line"], rows)


# -- the run directory


def run_directory_page() -> str:
    text = inspect.cleandoc(record_format.__doc__ or "")
    head, _, rest = text.partition("\n\n")
    parts = [
        head,
        "Its mode is 0700, that of its files 0600. A sample is one `write()`, so the record survives a SIGKILL of the command or of the monitor.",
    ]
    for section in re.split(r"\n(?=`[^\n]*`\n)", rest.replace("``", "`")):
        title, _, body = section.partition("\n")
        if not title.startswith("`"):
            parts.append(_plain(section))
            continue
        parts += [f"## {title}", *_described(textwrap.dedent(body))]
    return page("The run directory", *parts)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _described(body: str) -> Iterator[str]:
    """Paragraphs, the table of fields, and literal lines after a `::`."""
    lines = body.splitlines()
    prose: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if line.startswith("===="):
            end = next(n for n in range(place + 1, len(lines)) if lines[n].startswith("===="))
            if prose:
                yield _plain(" ".join(prose))
                prose = []
            column = line.index(" ") + len(line[line.index(" ") :]) - len(line[line.index(" ") :].lstrip())
            rows: list[list[str]] = []
            for row in lines[place + 1 : end]:
                if row[:1].strip():
                    rows.append([f"`{row[:column].strip()}`", row[column:].strip()])
                else:
                    rows[-1][1] += " " + row.strip()
            yield table(["field", "meaning"], rows)
            place = end + 1
            continue
        if not line.strip() or (line[:1] == " " and prose and prose[-1].endswith("::")):
            if prose and prose[-1].endswith("::"):
                literal = []
                place += not line.strip()
                while place < len(lines) and (lines[place][:1] == " " or not lines[place].strip()):
                    literal.append(lines[place])
                    place += 1
                yield _plain(" ".join(prose))[:-1]
                yield "```text\n" + textwrap.dedent("\n".join(literal)).strip() + "\n```"
                prose = []
                continue
            if prose:
                yield _plain(" ".join(prose))
                prose = []
        elif re.match(r"\w+$", line) and place + 1 < len(lines) and lines[place + 1].startswith("    "):
            if prose:
                yield _plain(" ".join(prose))
                prose = []
            term = line.strip()
            place += 1
            told = []
            while place < len(lines) and lines[place].startswith("    "):
                told.append(lines[place].strip())
                place += 1
            text = " ".join(told)
            fields, _, after = text.partition("}: ") if text.startswith("{") else (text, "", "")
            if text.startswith("{"):
                closed = fields if fields.endswith("}") else fields + "}"
                yield f"**{term}**: `{closed}`" + (f": {after}" if after else "")
            else:
                yield f"**{term}**: {text}"
            continue
        else:
            prose.append(line)
        place += 1
    if prose:
        yield _plain(" ".join(prose))


# -- JSON schemas


SCHEMAS = {
    "report": ("report RUN --json", "reports/report.schema.json"),
    "verdict": ("wrap --summary json", "reports/verdict.schema.json"),
    "events": ("wrap --events FILE", "monitor/guard/events.schema.json"),
    "group": ("report GROUP --json", "wings/ranks/group.schema.json"),
    "check": ("check --format json", "wings/gate/budgets.schema.json"),
    "compare": ("compare --format json", "wings/gate/comparison.schema.json"),
}


def schemas_page() -> str:
    parts = [
        "The JSON that the command line prints is stable: fields may be added, none is removed or changes its meaning.",
        'Sizes are bytes, times are seconds; `null` is "not known", never zero. The schemas are part of the package, and tests check every output against them.',
    ]
    for name, (command, path) in SCHEMAS.items():
        text = (PACKAGE / path).read_text()
        schema = json.loads(text)
        parts += [
            f"## {name}",
            f"`otel-memwatch {command}`; in the package: `otel_memwatch/{path}`.",
            _field_table(schema),
        ]
        for kind, below in schema.get("$defs", {}).items():
            if "properties" in below:
                parts += [f"Fields of *{kind}*:", _field_table(below)]
        parts.append(
            f"<details><summary>The schema itself</summary>\n\n```json\n{text.strip()}\n```\n\n</details>"
        )
    return page("JSON schemas", *parts)


def _field_table(schema: dict[str, Any]) -> str:
    rows = [[f"`{where}`", kind] for where, kind in _named_fields(schema, "")]
    return table(["field", "type"], rows)


def _named_fields(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Every field that a schema names, with its type; what a reference leads to has a separate table."""
    for name, below in schema.get("properties", {}).items():
        where = prefix + name
        if not isinstance(below, dict):
            yield where, "anything"
            continue
        yield where, _kind(below)
        yield from _named_fields(below, f"{where}.")
        if isinstance(below.get("items"), dict):
            yield from _named_fields(below["items"], f"{where}[].")


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1].replace("_", " ")
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join(json.dumps(value) for value in schema["enum"])
    kinds = schema.get("type", "anything")
    told = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    items = schema.get("items")
    return f"{told} of {_kind(items)}" if isinstance(items, dict) else told

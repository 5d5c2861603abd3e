"""Every command that README and the manual show is one that the program takes."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import cli
from tests.support.documents import DOCUMENTS, OTHERS, ROOT, blocks, commands, name


@pytest.mark.parametrize("path", [*DOCUMENTS, *OTHERS], ids=name)
def test_commands_and_options_exist(path: Path) -> None:
    unknown = []
    for words in commands(path):
        if words[0] in {"COMMAND", "man"}:
            continue
        found = cli.get_command(click.Context(cli), words[0])
        if found is None:
            unknown.append(words)
            continue
        known = {
            spelled
            for one in (found, *below(found))
            for option in one.params
            for spelled in (*option.opts, *option.secondary_opts)
        }
        given = [word.split("=")[0] for word in words[1:] if re.match(r"--[a-z]|-[a-z]$", word)]
        if not {*given} <= known | {"--help"}:
            unknown.append(words)
    assert not unknown


def below(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command)
    return [one for each in command.list_commands(context) if (one := command.get_command(context, each))]


def test_commands_are_found_at_all() -> None:
    shown = {words[0] for path in DOCUMENTS for words in commands(path)}
    assert set(COMMANDS) - shown == set()


def test_programs_of_this_repository_that_it_names_are_there() -> None:
    text = "".join(path.read_text() for path in DOCUMENTS)
    modules = re.findall(r"python -m ((?:tests|dashboards)[\w.]*)", text)
    scripts = re.findall(r"(?:python|sh) (tests/[\w/]+\.(?:py|sh))", text)
    assert modules
    assert scripts
    for module in modules:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for script in scripts:
        assert (ROOT / script).exists(), script


def test_what_is_not_run_says_why() -> None:
    left_out = [(path, block) for path in DOCUMENTS for block in blocks(path) if not block.is_run]
    assert left_out
    for path, block in left_out:
        assert len(block.note.split()) >= 4, f"{name(path)}:{block.line}"

"""Help and version without Click say what Click says."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import cli
from otel_memwatch.cli.top_help import answer


@pytest.mark.parametrize("word", ["--help", "-h", "--version", "-V"])
@pytest.mark.parametrize("columns", [80, 200])
def test_it_answers_as_click_does(word: str, columns: int) -> None:
    done = CliRunner().invoke(cli, [word], prog_name="otel-memwatch", terminal_width=min(columns, 80) - 2)
    assert answer([word], COMMANDS, columns) == done.output.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "columns"),
    [([], 80), (["wrap", "--help"], 80), (["--help"], 79), (["--help", "x"], 80), (["--hel"], 80)],
)
def test_all_else_is_left_to_click(words: list[str], columns: int) -> None:
    assert answer(words, COMMANDS, columns) is None

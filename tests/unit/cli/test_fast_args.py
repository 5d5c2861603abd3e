"""The quick way to parse `wrap` agrees with Click, or leaves the work to it."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.cli.command_group import setting_options
from otel_memwatch.cli.fast_args import parse
from otel_memwatch.config import OPTIONS

WORDS = st.one_of(
    st.sampled_from(
        [
            "--",
            "-",
            "-h",
            "--help",
            "--exact=1",
            "--=x",
            "",
            "true",
            "--interval",
            "--out=",
            "--out",
            "0.1",
            "--no-out",
            "x=y",
        ]
    ),
    st.sampled_from([option.flag for option in OPTIONS.values()]),
    st.sampled_from(["--no-" + option.flag[2:] for option in OPTIONS.values()]),
    st.sampled_from([option.flag + "=v" for option in OPTIONS.values()]),
)


@click.command(context_settings={"allow_interspersed_args": False})
@setting_options("wrap")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def by_click(argv: tuple[str, ...], **values: Any) -> Any:
    return list(argv), {name: value for name, value in values.items() if value is not None}


@given(st.lists(WORDS, max_size=7))
def test_what_is_plain_means_the_same(arguments: list[str]) -> None:
    plain = parse(["wrap", *arguments], {})
    if plain is not None:
        assert by_click.main(arguments, standalone_mode=False) == (list(plain.argv), plain.given)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["wrap"],
        ["wrap", "--"],
        ["wrap", "--help"],
        ["wrap", "--interval"],
        ["wrap", "--exact=1", "true"],
        ["wrap", "--nonsense", "true"],
        ["wrap", "--interv", "1", "true"],
        ["report", "x"],
        ["-h"],
    ],
)
def test_what_is_not_plain_is_left_to_click(arguments: list[str]) -> None:
    assert parse(arguments, {}) is None


def test_the_usual_command_line_is_plain() -> None:
    plain = parse(["wrap", "--out", "r", "--interval=1s", "--no-plot", "--", "python", "--exact"], {})
    assert plain is not None
    assert plain.argv == ["python", "--exact"]
    assert plain.given == {"out": "r", "interval": "1s", "plot": False}


def test_completion_is_clicks() -> None:
    assert parse(["wrap", "true"], {"_OTEL_MEMWATCH_COMPLETE": "bash_complete"}) is None

"""The quick way to parse `wrap` agrees with Click, or leaves the work to it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.cli.plain import parse
from otel_memwatch.cli.settings import setting_options
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


def test_click_is_not_loaded_before_the_command_runs(tmp_path: Any) -> None:
    """Nor is anything else that a start need not wait for."""
    code = """if True:
        import os, sys
        from otel_memwatch import cli
        from otel_memwatch.monitor import wrap
        def launch(*arguments, **rest):
            heavy = {"click", "inspect", "asyncio", "subprocess", "logging", "dataclasses", "json", "threading"}
            print(sorted(heavy & set(sys.modules)), flush=True)
            os._exit(0)
        wrap.launch = launch
        cli.main()
    """
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, "wrap", "--out", str(tmp_path / "run"), "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]", done.stderr

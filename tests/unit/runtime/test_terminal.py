"""Whether a text is coloured, and how wide it may be."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.runtime.terminal import Display, display_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def terminal() -> Iterator[int]:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))
    yield follower
    os.close(leader)
    os.close(follower)


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True),
        ({"FORCE_COLOR": "0"}, True),
    ],
)
def test_colours_on_a_terminal(terminal: int, environ: dict[str, str], colour: bool) -> None:
    assert display_of(terminal, environ) == Display(77, colour)


def test_a_pipe_has_neither_unless_asked(terminal: int) -> None:
    read, write = os.pipe()
    try:
        assert display_of(write, {"COLUMNS": "50"}) == Display(None, colour=False)
        assert display_of(write, {"FORCE_COLOR": "3"}) == Display(None, colour=True)
    finally:
        os.close(read)
        os.close(write)
    assert display_of(write, {}) == Display(None, colour=False)  # closed


@pytest.mark.parametrize(("columns", "width"), [("50", 50), ("", 77), ("0", 77), ("wide", 77), ("²", 77)])
def test_columns_stands_above_the_terminal(terminal: int, columns: str, width: int) -> None:
    assert display_of(terminal, {"COLUMNS": columns}).width == width

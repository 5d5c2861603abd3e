"""The keywords that type checkers know are those that there are."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from otel_memwatch.api import keywords
from otel_memwatch.config import OPTIONS


@pytest.mark.parametrize(
    ("command", "typed"), [("attach", keywords.AttachSettings), ("watch", keywords.WatchSettings)]
)
def test_settings_are_those_of_the_option_table(command: str, typed: type) -> None:
    assert set(get_type_hints(typed)) == {
        name for name, option in OPTIONS.items() if command in option.commands
    }


def test_settings_of_commands_are_those_of_wrap() -> None:
    wrap = {name for name, option in OPTIONS.items() if "wrap" in option.commands}
    assert set(get_type_hints(keywords.CommandSettings)) == wrap - {"events", "repeat", "warmup"}


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.choices])
def test_choices_are_those_of_the_option_table(name: str) -> None:
    literal, none = get_args(get_type_hints(keywords.CommandSettings)[name])
    assert (get_args(literal), none) == (OPTIONS[name].choices, type(None))

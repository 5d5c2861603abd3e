"""Click options made from the option table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from otel_memwatch.config import OPTIONS, Option

_F = TypeVar("_F", bound=Callable[..., Any])


def setting_options(command: str) -> Callable[[_F], _F]:
    """Adds every option that `command` has in the table. Values arrive as given, `None` where nothing was.

    Those of an option that may be repeated arrive as a tuple.
    """

    def decorate(function: _F) -> _F:
        for option in reversed(OPTIONS.values()):
            if command in option.commands:
                function = _click_option(option)(function)
        return function

    return decorate


def _click_option(option: Option) -> Callable[[_F], _F]:
    if option.metavar is None:
        flag = f"{option.flag}/--no-{option.flag[2:]}"
        default = "on" if option.default else "off"
        return click.option(
            flag, option.name, default=None, help=f"{option.help} [{option.variable}; default: {default}]"
        )
    default = "" if option.default in (None, ()) else f"; default: {option.default}"
    return click.option(
        option.flag,
        option.name,
        metavar=option.metavar,
        default=None,
        multiple=option.repeated,
        callback=lambda _context, _parameter, value: None if value == () else value,
        help=f"{option.help} [{option.variable}{default}]",
    )

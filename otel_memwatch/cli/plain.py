"""The command line of `wrap`, parsed without Click where there is nothing about it to ask or to explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_memwatch.config import OPTIONS
from otel_memwatch.runtime.typed import NamedTuple

_COMPLETION = "_OTEL_MEMWATCH_COMPLETE"
"""Variable by which a shell asks Click for completions."""


class Plain(NamedTuple):
    """A `wrap` that can start at once."""

    argv: Sequence[str]
    """The command."""
    given: Mapping[str, str | bool]
    """Settings, as `config.settings` takes them."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Plain | None:
    """Parses "wrap [OPTIONS] [--] COMMAND [ARGS]..."; `None`: Click has to look at it (help, mistakes, all else)."""
    if not arguments or arguments[0] != "wrap" or _COMPLETION in environment:
        return None
    values, flags = _known()
    given: dict[str, str | bool] = {}
    place = 1
    while place < len(arguments) and arguments[place].startswith("-") and arguments[place] != "-":
        word, assigned, value = arguments[place].partition("=")
        place += 1
        if word == "--":
            if assigned:
                return None
            break
        if word in flags and not assigned:
            name, flag = flags[word]
            given[name] = flag
        elif word in values and (assigned or place < len(arguments)):
            if not assigned:
                value = arguments[place]
                place += 1
            given[values[word]] = value
        else:
            return None
    return Plain(arguments[place:], given) if place < len(arguments) else None


def _known() -> tuple[dict[str, str], dict[str, tuple[str, bool]]]:
    """Name by spelling, of options with a value and of flags."""
    values, flags = {}, {}
    for option in OPTIONS.values():
        if "wrap" in option.commands:
            if option.metavar is None:
                flags[option.flag] = option.name, True
                flags[f"--no-{option.flag[2:]}"] = option.name, False
            else:
                values[option.flag] = option.name
    return values, flags

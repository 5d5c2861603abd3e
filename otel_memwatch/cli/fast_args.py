"""Parser of simple `wrap` command lines, without Click.

This second parser only saves time. The command waits for `wrap` to start, and importing Click takes 20 ms, half of the
allowed delay. Help, completion, mistakes and abbreviations are left to Click. Tests compare the two parsers on random
command lines; both use one table of options.
"""

from __future__ import annotations

from otel_memwatch.cli import COMPLETION
from otel_memwatch.config import OPTIONS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class WrapArguments(NamedTuple):
    """Parsed `wrap` that can start at once."""

    argv: Sequence[str]
    """Command with its arguments."""
    given: Mapping[str, Any]
    """Settings for `config.settings`."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> WrapArguments | None:
    """Parse "wrap [OPTIONS] [--] COMMAND [ARGS]..."; `None`: Click must handle it (help, mistakes, all else)."""
    if not arguments or arguments[0] != "wrap" or COMPLETION in environment:
        return None
    values, flags = _known()
    given: dict[str, Any] = {}
    index = 1
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index] != "-":
        word, assigned, value = arguments[index].partition("=")
        index += 1
        if word == "--":
            if assigned:
                return None
            break
        if word in flags and not assigned:
            name, flag = flags[word]
            given[name] = flag
        elif word in values and (index < len(arguments) if not assigned else word.startswith("--")):
            if not assigned:
                value = arguments[index]
                index += 1
            name = values[word]
            given[name] = (*given.get(name, ()), value) if OPTIONS[name].repeated else value
        else:
            return None
    return WrapArguments(arguments[index:], given) if index < len(arguments) else None


def _known() -> tuple[dict[str, str], dict[str, tuple[str, bool]]]:
    """Return names by spelling: of options with a value, and of flags."""
    values, flags = {}, {}
    for option in OPTIONS.values():
        if "wrap" in option.commands:
            if option.metavar is None:
                flags[option.flag] = option.name, True
                flags[f"--no-{option.flag[2:]}"] = option.name, False
            else:
                values[option.flag] = option.name
                if option.short:
                    values[option.short] = option.name
    return values, flags

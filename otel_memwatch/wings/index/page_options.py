"""The option `--redact`, and runs as reports with it read them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    _F = TypeVar("_F", bound=Callable[..., object])

_ALL = "--redact=all"


class RedactingCommand(click.Command):
    """Accept `--redact` and `--redact=all`. Click would take a name after `--redact` for its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace the long spelling by a flag."""
        end = args.index("--") if "--" in args else len(args)
        given = ["--redact-all" if word == _ALL else word for word in args[:end]]
        return super().parse_args(ctx, given + args[end:])


def redact_option(function: _F) -> _F:
    """Add `redact` ("", "names" or "all") to a `RedactingCommand`."""
    flag = click.option(
        "--redact",
        "redact",
        flag_value="names",
        default="",
        help="Replace command lines, paths, host, user, environment and attributes with placeholders; "
        "--redact=all also replaces names of operations and functions.",
    )
    return flag(click.option("--redact-all", "redact", flag_value="all", hidden=True)(function))


@contextlib.contextmanager
def redacted(path: str | Path, redact: str) -> Iterator[Path]:
    """Yield the run directory, or with `redact` a temporary redacted copy. Raises `RunError`."""
    if not redact:
        yield Path(path)
        return
    import tempfile

    from otel_memwatch.record.redaction import REDACTED, Redactor, redacted_copy

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / REDACTED
        copy.mkdir()
        redacted_copy(Path(path), copy, Redactor(everything=redact == "all"))
        yield copy

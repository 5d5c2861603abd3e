"""Output of commands: to stdout, or to a file that is only overwritten on request."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.reports import REPORTS, render, write
from otel_memwatch.runtime.memory_headroom import be_killed_first
from otel_memwatch.runtime.terminal import display_of, say
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

STDOUT = "-"


def put(name: str, run: RecordedRun, output: str | None, *, force: bool, **options: Unpack[Options]) -> None:
    """Write the report `name` to a file and print its path; to stdout if `output` is "-" or `None`."""
    if output in (None, STDOUT):
        print_report(name, run, **options)
        return
    be_killed_first()
    say(str(write(name, run, Path(str(output)), force=force, **options)))


def print_report(name: str, run: RecordedRun, **options: Unpack[Options]) -> None:
    """Write the report `name` to stdout in its encoding."""
    be_killed_first()
    with _stdout() as out:
        if REPORTS[name].binary and out.isatty():
            raise UsageError(
                f"{name} is binary, and stdout is a terminal.", "use -o FILE, or redirect stdout"
            )
        options.setdefault("encoding", _encoding())
        options.setdefault("display", display_of(out.fileno()))
        render(name, run, out, **options)


def print_text(text: str) -> None:
    """Write text to stdout; escape characters that its encoding cannot represent."""
    with _stdout() as out:
        out.write(text.encode(_encoding(), "backslashreplace"))


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout. Raises `UsageError` if it is a terminal."""
    with _stdout() as out:
        if out.isatty():
            raise UsageError(
                "The output is binary, and stdout is a terminal.", "use -o FILE, or redirect stdout"
            )
        out.write(data)


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


@contextlib.contextmanager
def _stdout() -> Iterator[BinaryIO]:
    """Yield stdout as a stream of bytes. Raises `RunError` if it cannot be written."""
    stream: BinaryIO | None = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise UsageError("stdout is closed.", "name a file")
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:
        # The reader stopped early, like `| head`; this is no error.
        _let_go()
    except OSError as error:
        _let_go()
        raise RunError(f"Cannot write to stdout: {error.strerror or error}.") from None


def _let_go() -> None:
    """Discard buffered output, which the interpreter would write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

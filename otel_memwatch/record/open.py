"""Opening of a recorded run: find the kind of a path's content, and the class of `Record` that reads it.

A directory without a run, or with an invalid one, raises `RunError`: one sentence and a remedy.

1. `read_run` opens a path given by the user. It checks that the path holds a run, reads the run's description with
   `read_info`, and passes both to `open_record`.
2. `read_info` reads one `run.json`, and nothing else.
3. `open_record` opens a directory with a known description, as the monitor does at the end of a run. On a full disk
   `run.json` may be older or missing.

======================================  ==============================================================================
content                                 reader
======================================  ==============================================================================
`samples.jsonl` without spans           `Record`
`samples.jsonl` and exported spans      `SpannedRecord`: as `Record`, and the spans are operations too
only OTLP JSON lines, in a directory    `OtlpRecord`: samples and operations come from these lines
or one file
a line of `recipes.jsonl` beside it     `RecipeRecord`: one sample, of the end
======================================  ==============================================================================
"""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError
from otel_memwatch.record.fields import whole
from otel_memwatch.record.format import (
    METRICS_OTLP_FILE,
    PROCESSES_FILE,
    RECIPES_STORE,
    RUN_FILE,
    SAMPLES_FILE,
    SEGMENTED_SCHEMA,
    TRACES_OTLP_FILE,
)
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.record.reader import Record
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_MAX_INFO = 16 * 1024 * 1024
"""Size limit of `run.json` in bytes: the longest command that Linux starts has 6 MiB of arguments."""


def read_run(path: str | os.PathLike[str]) -> Record:
    """Open a run directory, or a file of OTLP JSON lines.

    Raises `RunError` if the run does not exist, or this version cannot read it.
    """
    from pathlib import Path

    directory = Path(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        if (recipe := read_recipe(directory)) is not None:
            return recipe
        raise no_run(directory) from None
    except NotADirectoryError:
        if directory.name in {RUN_FILE, SAMPLES_FILE, PROCESSES_FILE}:
            raise RunError(
                f"{directory} is a file, not a run directory.", "name the directory that it lies in"
            ) from None
        return _otlp_record(directory, None)
    except (OSError, ValueError) as error:
        raise RunError(f"The run {str(directory)!r} cannot be read: {_reason(error)}.") from None
    has_otlp = not {METRICS_OTLP_FILE, TRACES_OTLP_FILE}.isdisjoint(names)
    if RUN_FILE not in names:
        return _without_description(directory, names, has_otlp=has_otlp)
    info = read_info(directory / RUN_FILE)
    schema = whole(info.get("schema"))
    if schema is None:
        raise RunError(
            f"{directory / RUN_FILE} does not describe a run of otel-memwatch.", "name another directory"
        )
    if schema > SEGMENTED_SCHEMA:
        raise RunError(
            f"The run {directory} was recorded by a newer version (schema {schema}, known is {SEGMENTED_SCHEMA}).",
            "upgrade otel-memwatch",
        )
    if has_otlp and SAMPLES_FILE not in names:
        return _otlp_record(directory, info)
    return open_record(directory, info)


def no_run(directory: object) -> RunError:
    """Return the error for a run directory that does not exist."""
    return RunError(f"There is no run {directory}.", "name a run directory; `otel-memwatch runs` lists them")


def read_info(path: str | os.PathLike[str], directory: int | None = None) -> Mapping[str, Any]:
    """Return the object in a `run.json`. Raises `RunError` if it is not a regular file, too large or damaged.

    With `directory`, the descriptor of an open directory, `path` is the name of a file in it; no link is followed.
    """
    flags = 0 if directory is None else os.O_NOFOLLOW
    try:
        descriptor = open_regular(path, flags, directory)
        try:
            # `read` allocates the requested bytes before it checks the size of the file.
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, min(size, _MAX_INFO))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {_reason(error)}.") from None
    if size > _MAX_INFO:
        raise RunError(
            f"{path} has more than {_MAX_INFO >> 20} MiB: none of ours has.", "restore it from a copy"
        )
    if not data.strip(b"\0 \r\n\t"):
        raise RunError(
            f"{path} is empty.", "the machine or the disk failed while it was written; the run is lost"
        )
    info = _parse(data)
    if info is None:
        raise RunError(f"{path} is damaged: it is not complete JSON.", "restore it from a copy")
    if not isinstance(info, dict):
        raise RunError(f"{path} does not describe a run of otel-memwatch.", "name another directory")
    return info


def expect_many() -> None:
    """Parse each `run.json` with `msgspec` from now on: a third of the time of `json`, after an import of 25 ms."""
    global _parse  # noqa: PLW0603 - one parser for a process
    try:
        from msgspec import MsgspecError
        from msgspec.json import Decoder
    except ImportError:
        return
    decoder = Decoder()

    def parsed(data: bytes) -> Any:
        try:
            return decoder.decode(data)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            return parse(data)

    _parse = parsed


_parse: Callable[[bytes], Any] = parse


def open_record(directory: str | os.PathLike[str], info: Mapping[str, Any]) -> Record:
    """Return the record of a directory with our samples and a known description. Raises nothing."""
    if os.path.isfile(f"{directory}/{TRACES_OTLP_FILE}"):
        from otel_memwatch.record.otlp_file import SpannedRecord

        return SpannedRecord(directory, info)
    return Record(directory, info)


def read_recipe(path: str | os.PathLike[str]) -> Record | None:
    """Return a recipe: a line of the file beside `path`, which need not exist. `None`: there is no such line."""
    if not os.path.lexists(os.path.join(os.path.dirname(os.path.abspath(path)), RECIPES_STORE)):
        return None
    from pathlib import Path

    from otel_memwatch.record import recipes

    return recipes.read_recipe(Path(path))


def _without_description(directory: Path, names: list[str], *, has_otlp: bool) -> Record:
    """Open a directory without a `run.json`."""
    if has_otlp:
        return _otlp_record(directory, None)
    if (recipe := read_recipe(directory)) is not None:
        return recipe
    if not names:
        raise RunError(
            f"The run directory {directory} is empty.", "the monitor ended before it recorded anything"
        )
    nested = sorted(n for n in names if os.path.isfile(directory / n / RUN_FILE))
    if nested:
        from otel_memwatch.text import count

        raise RunError(
            f"{directory} is not a run directory, but contains {count(len(nested), 'run')}.",
            f"name one: {directory / nested[-1]}",
        )
    raise RunError(
        f"{directory} is not a run directory: it has no {RUN_FILE}.", "`otel-memwatch runs` lists runs"
    )


def _otlp_record(path: Path, info: Mapping[str, Any] | None) -> Record:
    from otel_memwatch.record.otlp_file import OtlpRecord

    return OtlpRecord(path, info)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

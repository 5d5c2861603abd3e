"""Files of reports: written atomically, existing ones protected, and removed after a failure."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import FILE_MODE, UNFINISHED
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def destination(path: Path, run_directory: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a stream to a file that is written atomically. Raises like `reports.write`."""
    try:
        with _opened(path, run_directory, force=force) as out:
            yield out
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextlib.contextmanager
def _opened(path: Path, run_directory: Path, *, force: bool) -> Iterator[BinaryIO]:
    kind = None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        kind = path.stat().st_mode
    if kind is not None and stat.S_ISDIR(kind):
        raise UsageError(f"{path} is a directory.", "name a file in it")
    if kind is not None and not stat.S_ISREG(kind):
        with path.open("wb") as out:
            yield out
        return
    if kind is not None and not force:
        raise _exists(path)
    # Keep a symbolic link and replace its target.
    real = Path(os.path.realpath(path))
    mode = FILE_MODE if real.parent == Path(os.path.realpath(run_directory)) else 0o666
    temporary = real.with_name(f".{real.name[:200]}.{os.urandom(4).hex()}{UNFINISHED}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        _move(temporary, real, force=force)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _move(temporary: Path, target: Path, *, force: bool) -> None:
    if force:
        temporary.replace(target)
        return
    try:
        # Unlike a rename, a link never replaces a file that appeared in the meantime.
        os.link(temporary, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:
        # This file system does not support links.
        temporary.replace(target)
        return
    temporary.unlink()


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} already exists.", "use --force to replace it")

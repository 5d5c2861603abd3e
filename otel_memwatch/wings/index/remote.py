"""Runs in an object store, or any file system that fsspec knows: brought here, as they were uploaded (`monitor.workers.uploading`).

A file that was uploaded in parts is put together from those that follow on each other; where a part is missing it ends
there, as a file whose writer was killed. A run of which nothing but some parts is there is one too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

from otel_memwatch.errors import RunError, Unavailable, describe
from otel_memwatch.record.format import PAGE_FILE, PART, PLOT_FILE, REPORT_FILE
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_FETCHED: dict[str, str] = {}
"""By URL, where it is here."""
_AT_ONCE = 16
"""Files that are fetched at the same time."""
_NOT_READ = frozenset((PAGE_FILE, REPORT_FILE, PLOT_FILE))
"""What is made of a record need not be fetched."""


def is_remote(given: str | None) -> bool:
    """Whether it is a URL."""
    return given is not None and "://" in given and not os.path.lexists(given)


def here(given: str) -> str:
    """The path of a directory with what is at a URL; it is removed when this process ends. What is no URL is given back.

    Raises `Unavailable` where the client of the store is not installed, `RunError` where there is nothing, or it cannot be read.
    """
    if not is_remote(given):
        return given
    if given not in _FETCHED:
        _FETCHED[given] = _fetched(given)
    return _FETCHED[given]


def _fetched(url: str) -> str:
    try:
        import fsspec
    except ImportError:
        raise Unavailable(
            "Reading runs from a store needs fsspec.", "pip install 'otel-memwatch[upload]'"
        ) from None
    try:
        files, root = fsspec.url_to_fs(url)
        found: Mapping[str, Any] = files.find(root, detail=True)
    except ImportError as error:
        raise Unavailable(
            f"{mask_url(url)} needs a client: {error}.", "pip install s3fs, gcsfs or adlfs"
        ) from None
    except Exception as error:  # noqa: BLE001 - clients of stores raise what they like
        raise RunError(mask_url(f"{url} cannot be read: {describe(error)}.")) from None
    wanted = [name for name in found if name.rpartition("/")[2] not in _NOT_READ]
    if not wanted:
        raise RunError(f"There are no runs in {mask_url(url)}.")
    directory = tempfile.mkdtemp(prefix="memwatch-fetched-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

    def fetch(name: str) -> None:
        below = name.removeprefix(root).strip("/") or name.rpartition("/")[2]
        if ".." in below.split("/"):
            return
        target = os.path.join(directory, below)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(files.cat_file(name))

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(fetch, wanted))
    except Exception as error:  # noqa: BLE001 - as above
        raise RunError(mask_url(f"{url} cannot be read: {describe(error)}.")) from None
    for parent, _, names in os.walk(directory):
        _join(parent, names)
    return directory


def _join(directory: str, names: list[str]) -> None:
    """Puts files together from their parts."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        whole, found, offset = name.rpartition(PART)
        if found and offset.isascii() and offset.isdecimal():
            parts.setdefault(whole, []).append((int(offset), name))
    for whole, pieces in parts.items():
        target = os.path.join(directory, whole)
        size = 0
        there = os.path.exists(target)
        for begin, name in sorted(pieces):
            path = os.path.join(directory, name)
            if not there and begin == size:
                with open(path, "rb") as piece, open(target, "ab") as file:
                    shutil.copyfileobj(piece, file)
                size = os.path.getsize(target)
            os.unlink(path)

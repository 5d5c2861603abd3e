"""Download of runs from an object store or any other file system of fsspec (uploads: `monitor.workers.uploading`).

A file that was uploaded in parts is assembled from consecutive parts. It ends at the first missing part, as if its writer
had been killed. A directory with nothing but parts is a run too.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError, Unavailable, describe
from otel_memwatch.record.format import PAGE_FILE, PART, PLOT_FILE, REPORT_FILE
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_FETCHED: dict[str, str] = {}
"""Local directories by URL."""
_AT_ONCE = 16
"""Number of files fetched at the same time."""
_NOT_READ = frozenset((PAGE_FILE, REPORT_FILE, PLOT_FILE))
"""Files derived from a record, which need not be fetched."""


def is_remote(given: str | None) -> bool:
    """Return whether an argument is a URL and not an existing path."""
    return given is not None and "://" in given and not os.path.lexists(given)


def here(given: str) -> str:
    """Return a local directory with the files at a URL; it is removed when this process ends. Return paths unchanged.

    Raises `Unavailable` if the store's client is not installed, and `RunError` if the URL is empty or cannot be read.
    """
    if not is_remote(given):
        return given
    if given not in _FETCHED:
        _FETCHED[given] = _fetched(given)
    return _FETCHED[given]


def _fetched(url: str) -> str:
    import atexit
    import shutil
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

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
    except Exception as error:  # noqa: BLE001 - clients of stores raise any exception
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
    """Assemble files from their parts."""
    import shutil

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

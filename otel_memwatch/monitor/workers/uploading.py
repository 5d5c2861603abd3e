"""`--upload URL`: copy the run directory to an object store, or to any file system that fsspec supports.

A worker process does it every minute and at the end. It loads the client of the store, which takes 50 MiB or more and may
hang. An object cannot be appended to, so what a file of lines has grown by is an object of its own, `NAME.part-OFFSET`.
When the run has ended, the whole files replace the parts, and the directory in the store is a run directory like any
other. `wings.index.remote` reads the parts of a run that has not ended, or whose machine has died.

The job: `directory` and `url`. The worker uploads until its stdin ends, then once more. Its only answer: `bytes`, how
many it has sent, and `problem`, a sentence or null.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from otel_memwatch.errors import describe
from otel_memwatch.record.format import PART, RESERVE_FILE, RUN_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.worker import Worker, serve, stop_requested

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.runtime.typed import Any

PERIOD = 60.0
"""Seconds between two uploads; the first is after a few, so that a job is seen soon."""
_FIRST = 5.0
_PATIENCE = 60.0
"""Seconds that the end of the run waits for the last upload."""
_WITH_DIRECTORIES = frozenset(
    {"file", "local", "memory", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs", "webdav", "webdavs"}
)
"""Schemes of file systems, in which a file needs its directory. Object stores have buckets in that place."""


class Uploader:
    """The worker, as the monitor sees it. Raises `OSError` or `MemoryError` if it cannot be started.

    Args:
        url: the run's directory is made below it, under a name that no other run has.

    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._worker = Worker(__name__, discard_output=True)

    @property
    def pid(self) -> int:
        """Process id. The worker is no part of the run."""
        return self._worker.pid

    def begin(self, directory: Path) -> None:
        """Begin to upload. Raises nothing."""
        self._worker.give({"directory": str(directory), "url": self._url})

    def finish(self, hurried: Callable[[], bool] = lambda: False) -> str | None:
        """Wait for the last upload; return what went wrong, in a sentence."""
        problem: str | None = "it was given up"
        for answer in self._worker.answers(_PATIENCE, hurried):
            problem = answer["problem"]
        self._worker.end()
        return None if problem is None else f"the record was not uploaded to {self._url}: {problem}"


def start_uploader(url: str, say: Callable[[str], None]) -> Uploader | None:
    """Start the worker. If that fails, the run is recorded without it, after a line about it."""
    try:
        return Uploader(url)
    except (OSError, MemoryError) as error:
        say(f"otel-memwatch: the record is not uploaded: {describe(error)}")
        return None


def main(_arguments: list[str]) -> None:
    """Upload what the job names."""
    serve(_upload)


def _upload(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    problem: str | None = None
    mirror: Mirror | None = None
    wait, ended = _FIRST, False
    while not ended:
        ended, wait = stop_requested(wait), PERIOD
        try:
            if mirror is None:
                mirror = Mirror(Path(job["directory"]), job["url"])
            mirror.upload(last=ended)
            problem = None
        except Exception as error:  # noqa: BLE001 - clients of stores raise what they like; the next minute may do better
            problem = describe(error)
    say(bytes=0 if mirror is None else mirror.sent, problem=problem)


def _name_in_store(directory: Path) -> str:
    """The run directory's name and eight digits of its span's id.

    Its own name is that of one run only on its machine: two pods that start the same command within the same second, as
    process 1, have the same, and so have all runs with the same `--out`.
    """
    from otel_memwatch.record.open import read_info
    from otel_memwatch.record.run_info_schema import RunInfo

    span = RunInfo.of(read_info(directory / RUN_FILE)).trace.get("span_id")
    return f"{directory.name}-{span[:8]}" if span else directory.name


class Mirror:
    """A run directory and what of it is in the store. Raises whatever the client of the store does, and `RunError` for no run.

    Args:
        directory: the run directory.
        url: where runs are kept in the store.

    """

    def __init__(self, directory: Path, url: str) -> None:
        import fsspec

        self._directory = directory
        self._files, path = fsspec.url_to_fs(url)
        self._target = f"{path.rstrip('/')}/{_name_in_store(directory)}"
        self._has_directories = url.partition("://")[0] in _WITH_DIRECTORIES
        self._offsets: dict[str, int] = {}
        self._whole: dict[str, tuple[int, int]] = {}
        self.sent = 0
        """Bytes so far."""

    def upload(self, *, last: bool = False) -> None:
        """Uploads what is new; with `last`, everything whole, in place of the parts."""
        names = sorted(
            name for name in os.listdir(self._directory) if not name.startswith(".") and name != RESERVE_FILE
        )
        # The description goes last: where it says that the run has ended, all else is there.
        for name in sorted(names, key=lambda one: one == RUN_FILE):
            path = self._directory / name
            if not path.is_file():
                continue
            if name.endswith(".jsonl") and not last:
                self._part(path)
            else:
                self._file(path)
        if last:
            self._remove_parts()

    def _part(self, path: Path) -> None:
        offset = self._offsets.get(path.name, 0)
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        # Whole lines: what is torn now comes with the next part.
        data = data[: data.rfind(b"\n") + 1]
        if data:
            self._put(f"{path.name}{PART}{offset:014d}", data)
            self._offsets[path.name] = offset + len(data)

    def _file(self, path: Path) -> None:
        status = path.stat()
        looks = status.st_mtime_ns, status.st_size
        if self._whole.get(path.name) == looks:
            return
        self._put(path.name, path.read_bytes())
        self._whole[path.name] = looks

    def _put(self, name: str, data: bytes) -> None:
        # File systems want the directory. In an object store that would make the bucket, also one whose name is a slip.
        if self._has_directories and not self._offsets and not self._whole:
            self._files.makedirs(self._target, exist_ok=True)
        self._files.pipe_file(f"{self._target}/{name}", data)
        self.sent += len(data)

    def _remove_parts(self) -> None:
        with contextlib.suppress(Exception):  # the whole files are there: parts beside them count for nothing
            parts = [
                path for path in self._files.ls(self._target, detail=False) if PART in path.rpartition("/")[2]
            ]
            if parts:
                self._files.rm(parts)

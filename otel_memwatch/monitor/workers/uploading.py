"""Copy of the run directory in an object store, or in any file system that fsspec supports (`--upload URL`).

- A worker process uploads every minute and at the end. The client of the store takes 50 MiB or more and may hang.
- Objects cannot be appended to. The new lines of a file become a separate object, `NAME.part-OFFSET`.
- After the end of the run, the whole files replace the parts. The directory in the store is then a normal run directory.
- `wings.index.remote` reads the parts of a run that has not ended or that its machine did not survive.

The job has `directory` and `url`. The worker uploads until its stdin ends, then once more. Its only answer has `bytes`,
the number sent, and `problem`, a sentence or null.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.record.format import PART, RESERVE_FILE, RUN_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.worker import Worker, serve, stop_requested

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.runtime.typed import Any

PERIOD = 60.0
"""Seconds between two uploads."""
_FIRST = 5.0
"""Seconds before the first upload, which makes the run visible in the store."""
_PATIENCE = 60.0
"""Longest wait of the run's end for the last upload, in seconds."""
_WITH_DIRECTORIES = frozenset(
    {"file", "local", "memory", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs", "webdav", "webdavs"}
)
"""Schemes of file systems, in which a file needs its directory. Object stores have buckets instead."""


class Uploader:
    """Monitor's side of the worker. Raises `OSError` or `MemoryError` if it cannot be started.

    Args:
        url: parent of the run's directory in the store, which gets a unique name.

    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._worker = Worker(__name__, discard_output=True)

    @property
    def pid(self) -> int:
        """Process id. The worker is not part of the run."""
        return self._worker.pid

    def begin(self, directory: Path) -> None:
        """Start to upload. Raises nothing."""
        self._worker.give({"directory": str(directory), "url": self._url})

    def finish(self, hurried: Callable[[], bool]) -> str | None:
        """Wait for the last upload; return a sentence about its failure, or `None`."""
        problem: str | None = "it was given up"
        for answer in self._worker.answers(_PATIENCE, hurried):
            problem = answer["problem"]
        self._worker.end()
        return None if problem is None else f"the record was not uploaded to {self._url}: {problem}"


def start_uploader(url: str, say: Callable[[str], None]) -> Uploader | None:
    """Start the worker. If that fails, print why and return `None`: the run is recorded without it."""
    try:
        return Uploader(url)
    except (OSError, MemoryError) as error:
        say(f"otel-memwatch: the record is not uploaded: {describe(error)}")
        return None


def main(_arguments: list[str]) -> None:
    """Upload the directory that the job names."""
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
        except Exception as error:  # noqa: BLE001 - any exception of a store's client; the next upload may succeed
            problem = describe(error)
    say(bytes=0 if mirror is None else mirror.sent, problem=problem)


class Mirror:
    """Run directory and its copy in the store. Raises `RunError` for no run, and all exceptions of the store's client.

    Args:
        directory: the run directory.
        url: parent directory of runs in the store.

    """

    def __init__(self, directory: Path, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise Unavailable("fsspec is not installed.", "pip install 'otel-memwatch[upload]'") from None
        self._directory = directory
        self._files, path = fsspec.url_to_fs(url)
        from otel_memwatch.record.open import read_info
        from otel_memwatch.record.run_info_schema import RunInfo

        # A directory's name is unique only on its machine, so eight digits of the span follow it: two pods may start
        # the same command as process 1 within a second, and all runs with the same `--out` have one name.
        span = RunInfo.of(read_info(directory / RUN_FILE)).trace.get("span_id")
        name = f"{directory.name}-{span[:8]}" if span else directory.name
        self._target = f"{path.rstrip('/')}/{name}"
        self._has_directories = url.partition("://")[0] in _WITH_DIRECTORIES
        self._offsets: dict[str, int] = {}
        self._whole: dict[str, tuple[int, int]] = {}
        self.sent = 0
        """Bytes sent so far."""

    def upload(self, *, last: bool = False) -> None:
        """Upload all new lines and changed files; with `last`, all whole files, in place of the parts."""
        names = sorted(
            name for name in os.listdir(self._directory) if not name.startswith(".") and name != RESERVE_FILE
        )
        # run.json is last: if it shows the end of the run, all other files are uploaded.
        for name in sorted(names, key=lambda one: one == RUN_FILE):
            path = self._directory / name
            if not path.is_file():
                continue
            if name.endswith(".jsonl") and not last:
                offset = self._offsets.get(name, 0)
                with path.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
                # Whole lines only: an unfinished one belongs to the next part.
                data = data[: data.rfind(b"\n") + 1]
                if data:
                    self._put(f"{name}{PART}{offset:014d}", data)
                    self._offsets[name] = offset + len(data)
            else:
                status = path.stat()
                looks = status.st_mtime_ns, status.st_size
                if self._whole.get(name) != looks:
                    self._put(name, path.read_bytes())
                    self._whole[name] = looks
        if last:
            with contextlib.suppress(Exception):  # readers ignore parts of whole files
                paths = self._files.ls(self._target, detail=False)
                if parts := [path for path in paths if PART in path.rpartition("/")[2]]:
                    self._files.rm(parts)

    def _put(self, name: str, data: bytes) -> None:
        # File systems need the directory. In an object store this would create a bucket, even with a misspelt name.
        if self._has_directories and not self._offsets and not self._whole:
            self._files.makedirs(self._target, exist_ok=True)
        self._files.pipe_file(f"{self._target}/{name}", data)
        self.sent += len(data)

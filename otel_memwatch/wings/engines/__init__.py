"""Correction of workflow engines' measurement files with figures of recorded runs.

`ENGINES` lists the engines. Each is a module with `correct(directory, runs)`, which yields each file and the reason if it
could not be corrected.

* A file is replaced atomically.
* It keeps its times; otherwise engines would repeat jobs.
* Its first version stays beside it as `.orig`.
"""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.run import RecordedRun

    Correction = Callable[[Path, Sequence[RecordedRun]], Iterator[tuple[Path, str]]]

ENGINES = {
    "snakemake": "The benchmark files of a workflow's finished jobs.",
    "nextflow": "The .command.trace of the tasks in a work directory.",
}
"""Each engine, and the files that are corrected."""

ORIGINAL = ".orig"


def correct(engine: str, directory: Path, runs: Path) -> Iterator[tuple[Path, str]]:
    """Correct the files of the workflow in `directory` with the runs below `runs`. Raises `RunError`.

    Yields each file, with the reason if it is unchanged, else an empty text.
    """
    from otel_memwatch.run import load
    from otel_memwatch.wings.index.run_search import run_directories

    finished = []
    for path in run_directories(str(runs)):
        with contextlib.suppress(RunError):
            run = load(path)
            if run.state == "finished":
                finished.append(run)
    if not finished:
        raise RunError(
            f"There is no finished run below {runs}.",
            "otel-memwatch shell --help says how rules are recorded",
        )
    finished.sort(key=lambda run: run.started_wall)
    work: Correction = import_module(f".{engine}", __name__).correct
    yield from work(directory, finished)


def largest_sample(run: RecordedRun, metric: str) -> float | None:
    """Return the largest recorded value of a metric; `None`: none was recorded."""
    samples = run.samples()
    values = [max(known) for column in samples.find(metric) if len(known := samples.known(column)[1])]
    return float(max(values)) if values else None


def largest_resident(run: RecordedRun) -> float | None:
    """Return the memory that engines call RSS, in bytes: the sum of the processes' resident sizes; `None`: unknown.

    It is the largest sum at a sample. One process can have had more in between, as its high-water mark shows.
    """
    summed, process = largest_sample(run, catalog.MEMWATCH_TREE_MEMORY_USAGE), known_bytes(run.peaks.process)
    return max(summed or 0, process or 0) or None


def known_bytes(peak: Peak | None) -> int | None:
    """Return a peak in bytes; `None` if it has no lower bound."""
    return None if peak is None or peak.low is None else peak.bytes


def replace(path: Path, text: str) -> None:
    """Replace the text of a file; its first version stays beside it. Raises `OSError`."""
    status = path.stat()
    original = path.with_name(path.name + ORIGINAL)
    part, kept = (path.with_name(f".{path.name}.{os.getpid()}{end}") for end in (".part", ORIGINAL))
    try:
        part.write_text(text, encoding="utf-8")
        part.chmod(status.st_mode & 0o7777)
        os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        if not original.exists():
            try:
                os.link(path, original)
            except OSError:  # this file system has no links
                kept.write_bytes(path.read_bytes())
                kept.replace(original)
        part.replace(path)
    except BaseException:
        for unfinished in (part, kept):
            with contextlib.suppress(OSError):
                unfinished.unlink()
        raise

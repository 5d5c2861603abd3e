"""`bundle`: one file with the record of a run, for a bug report or a colleague."""

from __future__ import annotations

import io
import platform
import tarfile
from pathlib import Path

import click

from otel_memwatch._version import __version__
from otel_memwatch.record.open import no_run
from otel_memwatch.reports.atomic_file import destination
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.index.page_options import RedactingCommand, redact_option, redacted
from otel_memwatch.wings.ranks.group_commands import rank_directories, redacted_group
from otel_memwatch.wings.ranks.groups import find_group

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(cls=RedactingCommand)
@click.argument("run", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="memwatch-bundle.tar.gz",
    show_default=True,
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@redact_option
def command(run: str | None, *, output: str, force: bool, redact: str) -> None:
    """Pack the run directory RUN into one file, for a bug report or a colleague.

    It adds the versions of kernel, Python and otel-memwatch. Without --redact the record is complete, with command lines and
    paths. For a group, the file has a directory for each rank. Without RUN, or with "latest", it is the newest run below
    memwatch-runs.
    """
    target = Path(output)
    group = find_group(run)
    if group is not None:
        with redacted_group(group, redact) as ranks:
            _write(target, rank_directories(ranks), redact, force=force)
    else:
        with redacted(find_run(run), redact) as directory:
            _write(target, {"run": directory}, redact, force=force)
    say(clean(output))


def _write(target: Path, runs: Mapping[str, Path], redact: str, *, force: bool) -> None:
    """Write the bundle atomically; `runs`: run directories by their names in it. Raises `RunError`."""
    facts = {
        "otel_memwatch": __version__,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "redacted": redact or None,
    }
    for directory in runs.values():
        if not directory.is_dir():
            raise no_run(directory)
    with (
        destination(target, target.parent / "-", force=force) as out,
        tarfile.open(fileobj=out, mode="w:gz") as archive,
    ):
        for name, directory in runs.items():
            for path in sorted(directory.iterdir()):
                if path.is_file() and not path.is_symlink():
                    archive.add(path, f"{name}/{path.name}", filter=_without_owner)
        data = strict_json.dumps(facts, indent=1).encode()
        entry = tarfile.TarInfo("facts.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry

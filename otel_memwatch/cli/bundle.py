"""`bundle`: one file with the record of a run, for a bug report or a colleague."""

from __future__ import annotations

import io
import platform
import tarfile
from pathlib import Path

import click

from otel_memwatch._version import __version__
from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.terminal import say
from otel_memwatch.text import clean
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.index.redact_option import RedactingCommand, redact_option, redacted


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
    paths. Without RUN, or with "latest", it is the newest run below memwatch-runs.
    """
    if Path(output).exists() and not force:
        raise UsageError(f"{output} exists.", "replace it with --force")
    facts = {
        "otel_memwatch": __version__,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "redacted": redact or None,
    }
    with redacted(find_run(run), redact) as directory:
        try:
            with tarfile.open(output, "w:gz") as archive:
                for path in sorted(directory.iterdir()):
                    if path.is_file() and not path.is_symlink():
                        archive.add(path, f"run/{path.name}", filter=_without_owner)
                data = strict_json.dumps(facts, indent=1).encode()
                entry = tarfile.TarInfo("facts.json")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        except OSError as error:
            raise RunError(f"{output} cannot be written: {error.strerror}.") from None
    say(clean(output))


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry

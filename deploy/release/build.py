"""Build the files of a release: the same bytes for the same commit, on any machine at any time.

    python deploy/release/build.py DIRECTORY            sdist, pure wheel, wheel of this machine
    python deploy/release/build.py DIRECTORY --twice    build again in another folder, and compare

Needs `pip install build`. Wheels are built from the sdist, which proves that it is complete. cibuildwheel builds those for
other machines from the same sdist (`tool.cibuildwheel` in pyproject.toml).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commit_time() -> int:
    """Return the Unix time of the build: SOURCE_DATE_EPOCH, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    argv = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def build(kind: str, source: Path, out: Path, epoch: int, more: list[str], **variables: str) -> Path:
    """Run the build front end once and return its result."""
    before = set(out.iterdir())
    argv = [sys.executable, "-m", "build", f"--{kind}", "--outdir", str(out), *more, str(source)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), **variables}
    done = subprocess.run(argv, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    (made,) = set(out.iterdir()) - before
    return made


def settle(sdist: Path, epoch: int) -> None:
    """Rewrite the archive with one time, owner, order and plain modes; setuptools keeps those on disk."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isreg() else None)
    with open(sdist, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())


def build_all(out: Path, epoch: int, more: list[str]) -> dict[str, str]:
    """Build everything into a folder and return the digest of each file."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty")
    with tempfile.TemporaryDirectory() as scratch:
        sdist = build("sdist", checkout(Path(scratch) / "checkout"), out, epoch, more)
        settle(sdist, epoch)
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        source = Path(scratch) / sdist.name.removesuffix(".tar.gz")
        for kind in ("pure", "compiled"):
            build("wheel", source, out, epoch, more, OTEL_MEMWATCH_BUILD=kind)
            for left in ("build", "otel_memwatch.egg-info"):
                shutil.rmtree(source / left, ignore_errors=True)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}


def checkout(folder: Path) -> Path:
    """Return the files of the last commit, so no uncommitted file gets into a release."""
    argv = ["git", "archive", "--format=tar", "HEAD"]
    packed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--no-isolation", action="store_true", help="with the build tools that are installed")
    given = parser.parse_args()
    epoch, more = commit_time(), ["--no-isolation"] if given.no_isolation else []
    first = build_all(given.directory.resolve(), epoch, more)
    for name, digest in first.items():
        print(f"{digest}  {name}")
    if not given.twice:
        return 0
    with tempfile.TemporaryDirectory() as elsewhere:
        second = build_all(Path(elsewhere) / "somewhere/else", epoch, more)
    differing = [name for name in first if first[name] != second.get(name)]
    print("built twice: " + (f"NOT the same: {', '.join(differing)}" if differing else "the same bytes"))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

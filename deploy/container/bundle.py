# noqa: INP001 - a script that an image's build copies
"""Create a directory with otel-memwatch and its dependencies, down to the dynamic linker, for any image.

    python bundle.py DIRECTORY [--at /otel-memwatch]

Run it with the interpreter in which otel-memwatch is installed, on Linux, with patchelf on PATH. The
directory must be at the path `--at` when it runs, because the kernel finds the linker by it. The image needs the same
processor architecture, but no Python, no shell and no particular C library. Only the command's monitor runs from here;
the command does not see it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "otel-memwatch"
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
UNWANTED = shutil.ignore_patterns(
    "__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
    "config-*", "*.a", "_test*.so", "_tkinter*.so", "xxlimited*.so", "mpl-data/sample_data",
)  # fmt: skip

LAUNCHER = """\
#!{at}/bin/python3 -I
import sys

from otel_memwatch.cli import main

sys.exit(main())
"""


def main() -> None:
    """Create the directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--at", default="/otel-memwatch", help="where it will lie [/otel-memwatch]")
    given = parser.parse_args()
    root: Path = given.directory
    library = root / "lib" / VERSION
    (root / "bin").mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), root / "bin" / "python3")
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=UNWANTED, symlinks=False)
    site = library / "site-packages"
    site.mkdir()
    for name in sorted(_closure(PACKAGE)):
        _copy_distribution(name, site)
    _copy_libraries(root)
    _patch(root, given.at)
    launcher = root / "bin" / "otel-memwatch"
    launcher.write_text(LAUNCHER.format(at=given.at))
    launcher.chmod(0o755)
    # Compile now: the directory may be mounted read-only, which prevents caching at run time.
    compile_all = [
        "-m",
        "compileall",
        "-q",
        "-j0",
        "--invalidation-mode=unchecked-hash",
        "-s",
        str(root),
        "-p",
        given.at,
    ]
    subprocess.run([sys.executable, *compile_all, str(library)], check=False, stdout=subprocess.DEVNULL)


def _closure(name: str) -> set[str]:
    """Return a distribution and all of its requirements here, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if one in found:
            continue
        try:
            required = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or interpreter
        found.add(one)
        plain = (text for text in required if "extra ==" not in text)
        waiting += [match[0] for match in map(re.compile(r"[\w.-]+").match, plain) if match]
    return found


def _copy_distribution(name: str, site: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or ():
        source, parts = Path(str(file.locate())), file.parts
        if (
            ".." in parts
            or "tests" in parts
            or file.suffix in {".pyc", ".pyi", ".pth"}
            or not source.is_file()
        ):
            continue
        target = site.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    spec = importlib.util.find_spec("otel_memwatch")
    if name == PACKAGE and spec is not None and spec.origin is not None:
        # A development installation lists only a pointer.
        shutil.copytree(
            Path(spec.origin).parent,
            site / "otel_memwatch",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def _objects(root: Path) -> Iterator[Path]:
    """Return all ELF files."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _copy_libraries(root: Path) -> None:
    """Return every linked shared library outside this directory, including the linker."""
    target = root / "libs"
    target.mkdir()
    objects = list(_objects(root))
    here = {path.name for path in objects}
    for path in objects:
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for found in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed, re.MULTILINE):
            source = Path(found)
            if source.name not in here and not (target / source.name).exists():
                shutil.copy2(source.resolve(), target / source.name)


def _patch(root: Path, at: str) -> None:
    """Let the interpreter find linker and libraries in the directory. An RPATH also applies to libraries loaded later."""
    linker = next(path.name for path in (root / "libs").iterdir() if re.match(r"ld-(linux|musl)", path.name))
    interpreter = str(root / "bin" / "python3")
    patchelf = shutil.which("patchelf") or os.path.join(os.path.dirname(sys.executable), "patchelf")
    path = ["--force-rpath", "--set-rpath", "$ORIGIN/../libs:$ORIGIN/../lib"]
    subprocess.run([patchelf, *path, "--set-interpreter", f"{at}/libs/{linker}", interpreter], check=True)
    for library in (*(root / "libs").iterdir(), *(root / "lib").rglob("lib-dynload/*.so")):
        # An RPATH in the library would override that of the interpreter.
        printed = subprocess.run(
            [patchelf, "--print-rpath", str(library)], capture_output=True, text=True, check=True
        )
        if printed.stdout.strip():
            subprocess.run([patchelf, "--remove-rpath", str(library)], check=True)


if __name__ == "__main__":
    main()

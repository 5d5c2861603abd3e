"""The libraries of disturb.c and broken_disk.c, compiled, for programs that are to be disturbed."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def _library(name: str) -> str:
    target = Path(tempfile.mkdtemp(prefix=f"memwatch-{name}-")) / f"{name}.so"
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    options = ["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-ldl"]
    subprocess.run([compiler, *options, "-o", target, Path(__file__).with_name(f"{name}.c")], check=True)
    return str(target)


def variables() -> dict[str, str]:
    """What a process needs in its environment to be disturbed in the middle of a boundary."""
    return {"LD_PRELOAD": _library("disturb")}


def broken_disk(place: Path, switch: Path) -> dict[str, str]:
    """What a process needs in its environment for writes below `place` to fail with EIO while `switch` exists."""
    return {
        "LD_PRELOAD": _library("broken_disk"),
        "BROKEN_DISK": str(place),
        "BROKEN_DISK_SWITCH": str(switch),
    }

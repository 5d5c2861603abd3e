"""The library of disturb.c, compiled, for programs that are to be disturbed in the middle of a boundary."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def variables() -> dict[str, str]:
    """What a process needs in its environment to be disturbed."""
    target = Path(tempfile.mkdtemp(prefix="memwatch-disturb-")) / "disturb.so"
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    options = ["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-ldl"]
    subprocess.run([compiler, *options, "-o", target, Path(__file__).with_name("disturb.c")], check=True)
    return {"LD_PRELOAD": str(target)}

"""A memory control group of the tests' own, as referee and as limit."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

_numbers = itertools.count()


def memory_parent() -> Path:
    """A directory in which this process may make memory groups; skips the test (fails it in CI) where there is none."""
    v1 = Path("/sys/fs/cgroup/memory")
    entries = {
        line.split(":")[1]: line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
    }
    if v1.is_dir() and "memory" in entries:
        parent = v1 / entries["memory"].lstrip("/")
    else:
        parent = Path("/sys/fs/cgroup") / entries.get("", "/").lstrip("/")
    if not os.access(parent, os.W_OK) or not list(parent.glob("memory.*")):
        reason = "needs a memory control group that may be written (root, or delegation)"
        import pytest  # the groups are used where there is none, too

        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return parent


class Group:
    """A new child group of ours, or of `parent`."""

    def __init__(self, limit: int | None, parent: Path | None = None) -> None:
        self.path = (parent or memory_parent()) / f"memwatch-test-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        self.v1 = (self.path / "memory.max_usage_in_bytes").exists()
        if limit is not None:
            (self.path / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit))

    def enter(self) -> None:
        """Moves the calling process in: for `preexec_fn`."""
        (self.path / "cgroup.procs").write_text("0")

    @property
    def peak(self) -> int:
        """Bytes of its watermark."""
        name = "memory.max_usage_in_bytes" if self.v1 else "memory.peak"
        return int((self.path / name).read_text())

    def remove(self) -> None:
        """Removes it once it is empty."""
        for child in self.path.iterdir():
            if child.is_dir():
                with contextlib.suppress(OSError):
                    child.rmdir()
        for _ in range(100):
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                return


@contextlib.contextmanager
def group(limit: int | None = None, parent: Path | None = None) -> Iterator[Group]:
    """A group for the time of the block, with a limit in bytes or without, inside `parent` or beside us."""
    made = Group(limit, parent)
    try:
        yield made
    finally:
        made.remove()

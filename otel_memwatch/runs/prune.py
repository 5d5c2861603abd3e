"""Which runs may go, and their removal."""

from __future__ import annotations

import os
import shutil
import time

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.runs.indexed_run import IndexedRun


def to_prune(
    rows: Sequence[IndexedRun], keep: int | None, older: float | None, now: float | None = None
) -> list[IndexedRun]:
    """The runs that are neither among the newest `keep` nor begun within the last `older` seconds, the oldest first.

    Never one that goes on, one that cannot be read (it may be no run), or a link.
    """
    ended = sorted(
        (row for row in rows if row.state in ("finished", "incomplete")), key=lambda row: row.started
    )
    old = ended[: max(0, len(ended) - keep)] if keep is not None else ended
    since = (time.time() if now is None else now) - (older or 0.0)
    return [row for row in old if (older is None or row.started < since) and not os.path.islink(row.path)]


def disk_bytes(path: str) -> int:
    """Space that a run directory takes."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_blocks * 512
            except OSError:
                continue
    return total


def remove(path: str) -> str | None:
    """Removes a run directory; why it could not be done, or `None`."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        return f"{path} cannot be removed: {error.strerror}"
    return None

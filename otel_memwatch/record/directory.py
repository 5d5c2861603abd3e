"""Makes run directories. Imports little: it is needed before the target starts."""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.record.format import DIRECTORY_MODE


def create_directory(path: Path) -> None:
    """Makes the run directory, parents included. Raises `UsageError` when it exists or cannot be made."""
    try:
        os.makedirs(path.parent, exist_ok=True)
        os.mkdir(path, DIRECTORY_MODE)
    except OSError as error:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} exists already.", "a run is never overwritten: name another directory"
            ) from None
        raise UsageError(f"The run directory {path} cannot be made: {error.strerror}.") from None

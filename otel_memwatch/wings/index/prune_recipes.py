"""Removal of old recipes: their lines of `recipes.jsonl`, and the files of their operations."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from otel_memwatch.record.format import RECIPES_STORE, is_run_file
from otel_memwatch.record.recipes import id_of
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.prune import DIRECTORY_FLAGS, Removal, opened

if TYPE_CHECKING:
    from collections.abc import Sequence


def remove_recipes(
    parent: str, ids: Sequence[str], roots: Sequence[str], *, dry_run: bool = False
) -> Removal:
    """Remove the recipes of these IDs in the directory `parent`, which is one of `roots` or below it.

    Recorders wait meanwhile: they append under the same lock. The file is rewritten in place, because a recorder that
    waits has it open. With `dry_run`, only return the result of a removal.
    """
    names = frozenset(ids)
    root = next(root for root in roots if f"{parent}/".startswith(f"{root.rstrip('/')}/"))
    try:
        with opened(parent, root) as (_, _, directory), contextlib.ExitStack() as stack:
            file = os.open(RECIPES_STORE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            stack.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return Removal(False, note=f"{parent}/{RECIPES_STORE} stays: it is no file")
            fcntl.flock(file, fcntl.LOCK_EX)
            content = os.pread(file, os.fstat(file).st_size, 0)
            kept = b"".join(line for line in content.splitlines(keepends=True) if id_of(line) not in names)
            if not dry_run:
                os.pwrite(file, kept, 0)
                os.ftruncate(file, len(kept))
                for name in names:
                    with contextlib.suppress(OSError):  # most have no operations, so no directory
                        _remove_operations(name, directory)
            return Removal(True, len(content) - len(kept))
    except OSError as error:
        return Removal(False, note=f"{parent}/{RECIPES_STORE} stays: {error.strerror}")


def _remove_operations(name: str, parent: int) -> None:
    directory = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:
        for one in os.listdir(directory):
            found = os.stat(one, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and is_run_file(one):
                os.unlink(one, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)

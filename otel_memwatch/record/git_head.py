"""Commit that is checked out in a directory, read from `HEAD` and refs only. git itself is never run: it may run hooks.

Files may belong to another user: only what looks like a commit or a branch is used, and at most 1 MiB is read.
"""

from __future__ import annotations

import os

from otel_memwatch.record.fields import mapping, text
from otel_memwatch.record.jsonl import open_regular
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REVISION = "vcs.ref.head.revision"
_COMMIT_LENGTHS = 40, 64
_HEXADECIMAL = frozenset("0123456789abcdef")
_REFS = "refs/"
_LONGEST_REF = 200
"""Characters after `_REFS`."""
_MOST_BYTES = 1 << 20
_PARENTS = 40
"""Directories above that are searched for a repository."""


def git_head(directory: str) -> Mapping[str, str]:
    """Return `vcs.ref.head.revision`, and `vcs.ref.head.name` on a branch; empty outside a repository.

    Costs 0.1 to 0.4 ms.
    """
    git = _repository(directory)
    if not git:
        return {}
    head = _content(f"{git}/HEAD")
    if _is_commit(head):
        return {_REVISION: head}
    ref = head.removeprefix("ref: ")
    if not _is_ref(ref) or ".." in ref:
        return {}
    # A linked work tree has HEAD; its common directory has the branches.
    common = _content(f"{git}/commondir")
    places = [git, os.path.join(git, common)] if common else [git]
    name = {"vcs.ref.head.name": ref.removeprefix("refs/heads/")}
    for place in places:
        if _is_commit(commit := _content(f"{place}/{ref}")):
            return {_REVISION: commit, **name}
    for place in places:
        for line in _content(f"{place}/packed-refs").splitlines():
            commit, _, packed = line.partition(" ")
            if packed == ref and _is_commit(commit):
                return {_REVISION: commit, **name}
    return {}


def commit_of(info: Mapping[str, object]) -> str:
    """Return the commit of a recorded run: that of its working directory, else that of the CI job; empty: unknown.

    A job that measures base and head checks out both, but its variables name one commit.
    """
    for key in ("vcs", "ci"):
        found = text(mapping(info.get(key)).get(_REVISION))
        if found:
            return found
    return ""


def _is_commit(word: str) -> bool:
    return len(word) in _COMMIT_LENGTHS and _HEXADECIMAL.issuperset(word)


def _is_ref(word: str) -> bool:
    name = word.removeprefix(_REFS)
    plain = all(one.isalnum() or one in "_./@+-" for one in name)
    return plain and word.startswith(_REFS) and 0 < len(name) <= _LONGEST_REF


def _repository(directory: str) -> str:
    """Return the directory with HEAD; empty if there is none."""
    place = os.path.abspath(directory)
    for _ in range(_PARENTS):
        found = f"{place}/.git"
        if os.path.isdir(found):
            return found
        if os.path.isfile(found):
            target = _content(found)
            return (
                os.path.join(place, target.removeprefix("gitdir: ")) if target.startswith("gitdir: ") else ""
            )
        parent = os.path.dirname(place)
        if parent == place:
            break
        place = parent
    return ""


def _content(path: str) -> str:
    """Return the text of a small regular file without white space at its ends; empty if it cannot be read."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return ""
